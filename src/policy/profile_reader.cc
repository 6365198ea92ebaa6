#include "policy/profile_reader.h"

#include <algorithm>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "linux/capability_names.h"
#include "linux/syscall_names.h"
#include "policy/needed_calls.h"
#include "policy/yaml_fields.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxVariables = 512;
constexpr size_t kMaxVariableBytes = 32768;
constexpr const char* kFilters[] = {"balanced", "session", "strict", "none"};
constexpr const char* kDevices[] = {"null", "zero", "full", "random", "urandom"};
constexpr const char* kWritable[] = {"/scratch", "/tmp", "/dev/shm"};
constexpr const char* kDegradable[] = {"cgroup", "landlock", "observe_writes", "observe_network",
                                       "observe_system_calls"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool Contains(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

Fault FaultInName(const std::string& name) {
  if (IsWord(name, "._-", 64) && name[0] != '.' && name[0] != '-') return std::nullopt;
  return "is not a name: 1 to 64 letters, digits, dots, underscores and hyphens, the first neither dot nor hyphen";
}

Fault FaultInDescription(const std::string& text) {
  if (text.size() > 200) return "is longer than 200 bytes";
  if (EscapeForTerminal(text) != text) return "is not one line of printable text";
  return std::nullopt;
}

Fault FaultInSystemPath(const std::string& path) {
  if (Fault fault = FaultInHostPath(path)) return fault;
  if (Fault fault = FaultInFileName(path.substr(1))) return fault;
  for (const char* own : {"/etc", "/proc", "/sys", "/dev", "/run", "/scratch", "/tmp", "/workspace", "/var"}) {
    if (IsAtOrBelow(path, own)) return "lies in " + std::string(own) + ", which is made for each sandbox";
  }
  return std::nullopt;
}

Fault FaultInEtcPath(const std::string& path) {
  if (Fault fault = FaultInHostPath(path)) return fault;
  if (!IsAtOrBelow(path, "/etc") || path == "/etc") return "is not below /etc";
  if (Fault fault = FaultInFileName(path.substr(1))) return fault;
  for (const char* own : {"passwd", "group", "nsswitch.conf", "resolv.conf", "hosts", "hostname"}) {
    if (IsAtOrBelow(path, std::string("/etc/") + own)) return "is made for each sandbox";
  }
  for (const char* name :
       {"shadow", "shadow-", "gshadow", "gshadow-", "ssh", "ssl/private", "sudoers", "sudoers.d", "krb5.keytab"}) {
    const std::string secret = std::string("/etc/") + name;
    if (IsAtOrBelow(path, secret)) return "holds secrets of the host";
    if (IsAtOrBelow(secret, path)) return "contains " + secret + ", which holds secrets of the host";
  }
  return std::nullopt;
}

Fault FaultInProcPath(const std::string& path) {
  if (Fault fault = FaultInFileName(path)) return fault;
  if (path.size() > 200) return "is longer than 200 bytes";
  return std::nullopt;
}

Fault FaultInWriteComponent(const std::string& word) {
  if (Fault fault = FaultInFileName(word)) return fault;
  if (word.find('/') != std::string::npos) return "must be one component of a path";
  return std::nullopt;
}

Fault FaultInDeniedCall(const std::string& name) {
  if (Fault fault = FaultInSyscallName(name)) return fault;
  if (IsNeededCall(name))
    return "cannot be denied: the first process of every sandbox needs it to start, reap and end commands";
  return std::nullopt;
}

// The path must be narrow enough to belong to one program, and outside the places that workloads use.
Fault FaultInProbePath(const std::string& path) {
  if (Fault fault = FaultInHostPath(path)) return fault;
  if (Fault fault = FaultInFileName(path.substr(1))) return fault;
  if (std::count(path.begin(), path.end(), '/') < 3) return "is too wide: a probe's path has at least three components";
  for (const char* other : {"/usr", "/var"}) {
    if (IsAtOrBelow(path, other)) return std::nullopt;
  }
  return "is not below /usr or /var";
}

Fault FaultInWhy(const std::string& text) {
  if (text.empty()) return "is empty: say which programs make this attempt";
  return FaultInDescription(text);
}

Fault FaultInOwnPath(const std::string& path) { return FaultInPath(path); }

// Reads one document on top of the current contents of `profile_`.
class ProfileReader {
 public:
  ProfileReader(const std::string& file, Profile& profile) : fields_(file), profile_(profile) {}

  Status Read(const YamlNode& document) {
    const auto list = [this](std::vector<std::string>& to, Fault (*check)(const std::string&)) {
      return [this, &to, check](const YamlNode& node) { return fields_.Texts(node, to, check); };
    };
    const auto choices = [this](std::vector<std::string>& to, std::span<const char* const> known) {
      return [this, &to, known](const YamlNode& node) { return fields_.Choices(node, to, known); };
    };
    const auto method = [this](Status (ProfileReader::*read)(const YamlNode&)) {
      return [this, read](const YamlNode& node) { return (this->*read)(node); };
    };
    static constexpr const char* kOnViolation[] = {"fail", "report"};
    static constexpr const char* kWorkspace[] = {"ro", "cow"};
    const YamlKey keys[] = {
        {"version", [this](const YamlNode& node) { return fields_.Version(node); }},
        {"kind", [](const YamlNode&) { return Status(); }},  // judged by ReadProfileHead, as are the next two
        {"name", [](const YamlNode&) { return Status(); }},
        {"extends", [](const YamlNode&) { return Status(); }},
        {"description",
         [this](const YamlNode& node) { return fields_.Checked(node, profile_.description, FaultInDescription); }},
        {"strength", [this](const YamlNode& node) { return fields_.Choose(node, kStrengthNames, profile_.strength); }},
        {"namespaces", method(&ProfileReader::Namespaces)},
        {"system_paths", list(profile_.system_paths, FaultInSystemPath)},
        {"etc_paths", list(profile_.etc_paths, FaultInEtcPath)},
        {"devices", method(&ProfileReader::Devices)},
        {"proc", method(&ProfileReader::Proc)},
        {"mounts", method(&ProfileReader::Mounts)},
        {"workspace", [this](const YamlNode& node) { return fields_.Choose(node, kWorkspace, profile_.workspace); }},
        {"writable_paths", method(&ProfileReader::WritablePaths)},
        {"seccomp", method(&ProfileReader::Seccomp)},
        {"landlock", [this](const YamlNode& node) { return fields_.Truth(node, profile_.landlock); }},
        {"capabilities", choices(profile_.capabilities, linux_sys::kCapabilityNames)},
        {"no_new_privileges", [this](const YamlNode& node) { return fields_.Truth(node, profile_.no_new_privileges); }},
        {"limits", method(&ProfileReader::Limits)},
        {"network", method(&ProfileReader::Network)},
        {"approvals", method(&ProfileReader::ReadApprovals)},
        {"environment", method(&ProfileReader::Environment)},
        {"ignored_writes", list(profile_.ignored_writes, FaultInWriteComponent)},
        {"probes", method(&ProfileReader::Probes)},
        {"on_violation",
         [this](const YamlNode& node) { return fields_.Choose(node, kOnViolation, profile_.on_violation); }},
        {"start", [this](const YamlNode& node) { return fields_.Choose(node, kStartNames, profile_.start); }},
        {"allow_degraded", choices(profile_.allow_degraded, kDegradable)},
        {"project", method(&ProfileReader::Project)},
    };
    CAISSON_TRY_VOID(fields_.Map(document, keys));
    return CheckMountTargets(document);
  }

 private:
  Status Namespaces(const YamlNode& node) {
    std::vector<std::string> names;
    CAISSON_TRY_VOID(fields_.Choices(node, names, kNamespaceNames));
    profile_.namespaces = 0;
    for (size_t i = 0; i < kNamespaceNames.size(); ++i) {
      if (Contains(names, kNamespaceNames[i]))
        profile_.namespaces = static_cast<uint8_t>(profile_.namespaces | 1U << i);
    }
    return {};
  }

  Status Devices(const YamlNode& node) {
    CAISSON_TRY_VOID(fields_.Choices(node, profile_.devices, kDevices));
    if (Contains(profile_.devices, "null")) return {};
    return fields_.At(node, "\"null\" is missing: an empty standard input is made of it");
  }

  Status Proc(const YamlNode& node) {
    static constexpr const char* kSubsets[] = {"all", "pids"};
    const YamlKey keys[] = {
        {"subset", [this](const YamlNode& value) { return fields_.Choose(value, kSubsets, profile_.proc.pids_only); }},
        {"masked_files",
         [this](const YamlNode& value) { return fields_.Texts(value, profile_.proc.masked_files, FaultInProcPath); }},
        {"masked_directories",
         [this](const YamlNode& value) {
           return fields_.Texts(value, profile_.proc.masked_directories, FaultInProcPath);
         }},
    };
    return fields_.Map(node, keys);
  }

  Status Mounts(const YamlNode& node) {
    profile_.mounts.clear();
    return fields_.Items(node, [this](const YamlNode& item) -> Status {
      ProfileMount mount;
      const YamlKey keys[] = {
          {"source",
           [&](const YamlNode& value) {
             return fields_.Checked(value, mount.source, [](const std::string& path) { return FaultInHostPath(path); });
           }},
          {"target",
           [&](const YamlNode& value) {
             return fields_.Checked(value, mount.target,
                                    [](const std::string& path) { return FaultInMountTarget(path); });
           }},
          {"access", [&](const YamlNode& value) { return fields_.Choose(value, kAccessNames, mount.access); }},
      };
      CAISSON_TRY_VOID(fields_.Map(item, keys));
      if (mount.source.empty() || mount.target.empty()) return fields_.At(item, "a mount needs a source and a target");
      for (const ProfileMount& other : profile_.mounts) {
        if (IsAtOrBelow(mount.target, other.target) || IsAtOrBelow(other.target, mount.target)) {
          return fields_.At(item, "the targets " + Quoted(mount.target) + " and " + Quoted(other.target) +
                                      " contradict: one would cover the other");
        }
      }
      profile_.mounts.push_back(std::move(mount));
      return {};
    });
  }

  Status Probes(const YamlNode& node) {
    profile_.probes.clear();
    return fields_.Items(node, [this](const YamlNode& item) -> Status {
      ProbeRule probe;
      size_t reason = 0;
      const YamlKey keys[] = {
          {"reason",
           [&](const YamlNode& value) -> Status {
             CAISSON_TRY_VOID(fields_.Choose(value, kProbeReasons, reason));
             probe.reason = kProbeReasons[reason];
             return {};
           }},
          {"write", [&](const YamlNode& value) { return fields_.Checked(value, probe.write, FaultInProbePath); }},
          {"why", [&](const YamlNode& value) { return fields_.Checked(value, probe.why, FaultInWhy); }},
      };
      CAISSON_TRY_VOID(fields_.Map(item, keys));
      if (probe.reason.empty() == probe.write.empty())
        return fields_.At(item, "a probe has either a reason or a path to write");
      if (probe.why.empty()) return fields_.At(item, "a probe needs its why");
      for (const ProbeRule& other : profile_.probes) {
        if (other.name() == probe.name()) return fields_.At(item, Quoted(probe.name()) + " is listed twice");
      }
      profile_.probes.push_back(std::move(probe));
      return {};
    });
  }

  Status WritablePaths(const YamlNode& node) {
    CAISSON_TRY_VOID(fields_.Choices(node, profile_.writable_paths, kWritable));
    if (Contains(profile_.writable_paths, "/scratch")) return {};
    return fields_.At(node, "/scratch is missing: every sandbox has one; limit it with scratch_bytes");
  }

  Status Seccomp(const YamlNode& node) {
    size_t filter = 0;
    const YamlKey keys[] = {
        {"filter",
         [&](const YamlNode& value) -> Status {
           CAISSON_TRY_VOID(fields_.Choose(value, kFilters, filter));
           profile_.seccomp.filter = kFilters[filter];
           return {};
         }},
        {"allow", [this](const YamlNode& value) { return SystemCalls(value, profile_.seccomp.allow); }},
        {"deny",
         [this](const YamlNode& value) { return fields_.Texts(value, profile_.seccomp.deny, FaultInDeniedCall); }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    for (const std::string& name : profile_.seccomp.allow) {
      if (Contains(profile_.seccomp.deny, name)) return fields_.At(node, Quoted(name) + " is both allowed and denied");
    }
    return {};
  }

  Status SystemCalls(const YamlNode& node, std::vector<std::string>& names) const {
    return fields_.Texts(node, names, [](const std::string& name) { return FaultInSyscallName(name); });
  }

  Status Limits(const YamlNode& node) {
    std::vector<YamlKey> keys;
    for (const LimitField& field : kLimitFields) {
      keys.push_back({field.name, [this, &field](const YamlNode& value) -> Status {
                        CAISSON_TRY(const std::string text, fields_.Text(value));
                        Result<int64_t> limit = ReadLimit(field, text);
                        if (!limit) return fields_.At(value, limit.error().message);
                        profile_.limits.*field.value = *limit;
                        return {};
                      }});
    }
    return fields_.Map(node, keys);
  }

  Status Network(const YamlNode& node) {
    const YamlKey keys[] = {
        {"mode",
         [this](const YamlNode& value) { return fields_.Choose(value, kNetworkModeNames, profile_.network.mode); }},
        {"allow",
         [this](const YamlNode& value) {
           return fields_.Texts(value, profile_.network.allow,
                                [](const std::string& entry) { return FaultInAllowEntry(entry); });
         }},
        {"deny",
         [this](const YamlNode& value) {
           return fields_.Texts(value, profile_.network.deny,
                                [](const std::string& entry) { return FaultInDenyEntry(entry); });
         }},
        {"pool",
         [this](const YamlNode& value) -> Status {
           CAISSON_TRY(profile_.network.pool, fields_.Text(value));
           if (const Fault fault = FaultInPool(profile_.network.pool))
             return fields_.At(value, Quoted(profile_.network.pool) + " " + *fault);
           return {};
         }},
        {"private_ranges",
         [this](const YamlNode& value) {
           return fields_.Texts(value, profile_.network.private_ranges,
                                [](const std::string& range) { return FaultInAddressRange(range); });
         }},
        {"hosts", [this](const YamlNode& value) { return NetworkHosts(value); }},
        {"host_ports", [this](const YamlNode& value) { return HostPorts(value); }},
        {"credentials",
         [this](const YamlNode& value) {
           return fields_.Texts(value, profile_.network.credentials,
                                [](const std::string& name) { return FaultInCredentialName(name); });
         }},
        {"ask", [this](const YamlNode& value) { return fields_.Truth(value, profile_.network.ask); }},
        {"limits", [this](const YamlNode& value) { return NetworkQuotas(value); }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    if (profile_.network.mode == NetworkMode::kNone && !profile_.network.allow.empty())
      return fields_.At(node, "hosts are allowed but the mode is none");
    if (profile_.network.mode == NetworkMode::kNone &&
        (!profile_.network.host_ports.empty() || !profile_.network.credentials.empty() || profile_.network.ask))
      return fields_.At(node, "host_ports, credentials and ask need the mode allowlist");
    return {};
  }

  Status ReadApprovals(const YamlNode& node) {
    constexpr int64_t kMostWaitMs = 3'600'000;
    std::vector<YamlKey> keys;
    for (size_t kind = 0; kind < kEscalationKindNames.size(); ++kind) {
      keys.push_back({kEscalationKindNames[kind], [this, kind](const YamlNode& value) -> Status {
                        CAISSON_TRY_VOID(fields_.Choose(value, kEscalationNames, profile_.approvals.kinds[kind]));
                        if (kind >= kLiveEscalationKinds && profile_.approvals.kinds[kind] != Escalation::kDeny)
                          return fields_.At(value, "only deny: a sandbox that runs cannot be given it");
                        return {};
                      }});
    }
    keys.push_back({"wait_ms", [this](const YamlNode& value) -> Status {
                      CAISSON_TRY(const std::string text, fields_.Text(value));
                      const bool plain = std::all_of(text.begin(), text.end(), IsDigit);
                      const Result<int64_t> wait = plain ? ParseCount(text) : ParseDuration(text);
                      if (!wait || *wait < 100 || *wait > kMostWaitMs)
                        return fields_.At(value, Quoted(text) + " is no time from 100ms to 1h");
                      profile_.approvals.wait_ms = *wait;
                      return {};
                    }});
    return fields_.Map(node, keys);
  }

  Status HostPorts(const YamlNode& node) {
    std::vector<std::string> ports;
    CAISSON_TRY_VOID(fields_.Texts(node, ports, [](const std::string& port) { return FaultInPort(port); }));
    profile_.network.host_ports.clear();
    for (const std::string& port : ports)
      profile_.network.host_ports.push_back(static_cast<uint16_t>(std::stoul(port)));
    return {};
  }

  Status NetworkQuotas(const YamlNode& node) {
    std::vector<YamlKey> keys;
    for (const NetworkLimitField& field : kNetworkLimitFields) {
      keys.push_back({field.name, [this, &field](const YamlNode& value) -> Status {
                        CAISSON_TRY(const std::string text, fields_.Text(value));
                        int64_t& limit = profile_.network.limits.*field.value;
                        if (field.may_be_none && text == "none") return limit = 0, Status();
                        const Result<int64_t> number = field.is_size ? ParseSize(text) : ParseCount(text);
                        if (!number || *number < 1 || *number > field.most)
                          return fields_.At(value, Quoted(text) + " is no number from 1 to " +
                                                       std::to_string(field.most) +
                                                       (field.may_be_none ? ", nor none" : ""));
                        limit = *number;
                        return {};
                      }});
    }
    return fields_.Map(node, keys);
  }

  Status NetworkHosts(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kMap) return fields_.At(node, "expected names and addresses");
    profile_.network.hosts.clear();
    for (const YamlField& field : node.fields) {
      CAISSON_TRY(const std::string address, fields_.Text(field.value));
      if (const Fault fault = FaultInHostEntry(field.key.text, address))
        return fields_.At(field.value, Quoted(field.key.text + ": " + address) + " " + *fault);
      profile_.network.hosts.emplace_back(field.key.text, address);
    }
    return {};
  }

  Status Environment(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kMap) return fields_.At(node, "expected names and values");
    if (node.fields.size() > kMaxVariables) return fields_.At(node, "too many variables");
    auto& variables = profile_.environment;
    for (const auto& field : node.fields) {
      const std::string& name = field.key.text;
      if (!IsEnvName(name)) return fields_.At(field.key, Quoted(name) + " cannot be a variable's name");
      const auto known = std::find_if(variables.begin(), variables.end(),
                                      [&](const auto& variable) { return variable.first == name; });
      if (field.value.IsNull()) {  // null takes a variable of the parent away
        if (known != variables.end()) variables.erase(known);
        continue;
      }
      CAISSON_TRY(std::string value, fields_.Text(field.value));
      if (value.size() > kMaxVariableBytes) return fields_.At(field.value, "longer than 32 KiB");
      if (known != variables.end()) {
        known->second = std::move(value);
      } else {
        variables.emplace_back(name, std::move(value));
      }
    }
    return {};
  }

  Status Project(const YamlNode& node) {
    ProjectPaths project;
    const YamlKey keys[] = {
        {"root_path",
         [&](const YamlNode& value) {
           return fields_.Checked(value, project.root_path,
                                  [](const std::string& path) { return FaultInHostPath(path); });
         }},
        {"allowed_paths",
         [&](const YamlNode& value) {
           return fields_.Items(value, [&](const YamlNode& item) -> Status {
             AllowedPath allowed;
             const YamlKey allowed_keys[] = {
                 {"path", [&](const YamlNode& path) { return fields_.Checked(path, allowed.path, FaultInOwnPath); }},
                 {"access", [&](const YamlNode& word) { return fields_.Choose(word, kAccessNames, allowed.access); }},
             };
             CAISSON_TRY_VOID(fields_.Map(item, allowed_keys));
             if (allowed.path.empty()) return fields_.At(item, "an allowed path needs its path");
             for (const AllowedPath& other : project.allowed_paths) {
               if (other.path == allowed.path) return fields_.At(item, Quoted(allowed.path) + " is listed twice");
             }
             project.allowed_paths.push_back(std::move(allowed));
             return {};
           });
         }},
        {"denied_paths",
         [&](const YamlNode& value) { return fields_.Texts(value, project.denied_paths, FaultInOwnPath); }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    if (project.root_path.empty()) return fields_.At(node, "a project needs its root_path");
    profile_.project = std::move(project);
    return {};
  }

  // Compares several keys, so it runs after all of them are read.
  Status CheckMountTargets(const YamlNode& document) const {
    const YamlNode* at = document.Find("mounts");
    for (const ProfileMount& mount : profile_.mounts) {
      for (const std::string& path : profile_.system_paths) {
        if (IsAtOrBelow(mount.target, path) || IsAtOrBelow(path, mount.target)) {
          return fields_.At(at != nullptr ? *at : document,
                            "the target " + Quoted(mount.target) + " contradicts the system path " + Quoted(path));
        }
      }
    }
    return {};
  }

  YamlFields fields_;
  Profile& profile_;
};

}  // namespace

Fault FaultInSyscallName(const std::string& name) {
  if (linux_sys::SyscallNumber(name) >= 0) return std::nullopt;
  std::vector<std::string_view> known;
  for (int32_t number = 0; number < linux_sys::kSyscallNumberEnd; ++number) {
    if (const char* candidate = linux_sys::SyscallName(number)) known.emplace_back(candidate);
  }
  const std::string_view meant = Nearest(name, known);
  return "is no system call of this architecture" + (meant.empty() ? "" : "; did you mean " + Quoted(meant) + "?");
}

Result<int64_t> ReadLimit(const LimitField& field, std::string_view text) {
  Result<int64_t> value = Error::Invalid("");
  const bool plain = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  switch (field.unit) {
    case LimitUnit::kMilliseconds:
      // A bare number is in the unit of the limit's name. With a decimal point it would silently be read as seconds.
      if (!plain && !text.empty() && IsDigit(text.back()))
        return Error::Invalid(std::string(field.name) + ": " + Quoted(text) + " needs a unit, as in 1.5s");
      value = plain ? ParseCount(text) : ParseDuration(text);
      break;
    case LimitUnit::kMilliCpus:
      value = ParseCpus(text);
      break;
    case LimitUnit::kBytes:
      value = ParseSize(text);
      break;
    case LimitUnit::kCount:
      value = ParseCount(text);
      break;
  }
  if (!value) return std::move(value).error().In(field.name);
  if (*value < field.least || *value > field.most) {
    return Error::Invalid(std::string(field.name) + ": " + Quoted(text) + " is out of range; least " +
                          std::to_string(field.least) + ", most " + std::to_string(field.most));
  }
  return value;
}

Result<ProfileHead> ReadProfileHead(const YamlNode& document, const std::string& file) {
  const YamlFields fields(file);
  if (document.kind != YamlNode::Kind::kMap) return fields.At(document, "a profile is a map of keys and values");
  ProfileHead head;
  static constexpr const char* kKinds[] = {"profile"};
  for (const char* required : {"version", "name"}) {
    if (document.Find(required) == nullptr) return fields.At(document, std::string(required) + " is missing");
  }
  if (const YamlNode* kind = document.Find("kind")) CAISSON_TRY_VOID(fields.Choice(*kind, kKinds));
  CAISSON_TRY_VOID(fields.Checked(*document.Find("name"), head.name, FaultInName));
  if (const YamlNode* extends = document.Find("extends")) {
    CAISSON_TRY_VOID(fields.Checked(*extends, head.extends, FaultInName));
    head.extends_at = *extends;
  }
  return head;
}

Result<Profile> ReadProfile(const YamlNode& document, const std::string& file, const Profile& parent) {
  CAISSON_TRY(const ProfileHead head, ReadProfileHead(document, file));
  Profile profile = parent;
  profile.name = head.name;
  CAISSON_TRY_VOID(ProfileReader(file, profile).Read(document));
  return profile;
}

}  // namespace caisson::policy
