#include "verify/request.h"

#include <sys/random.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "base/units.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_fields.h"
#include "verify/request_source.h"
#include "verify/request_syntax.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

constexpr char kOmitForDefault[] = "; omit the field to use the profile's default";
constexpr size_t kMaxListEntries = 1024;  // allow entries, artifacts
constexpr size_t kMaxMounts = 64;
constexpr size_t kMaxCredentials = 32;
constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxLabelValueBytes = 256;
// One string of argv or env, with its NUL: the kernel's MAX_ARG_STRLEN.
constexpr size_t kMaxArgumentBytes = size_t{128} << 10;

// The bytes that exec needs for a string of `length` bytes: the string, its NUL and the pointer to it.
size_t ExecCost(size_t length) { return length + 1 + sizeof(char*); }

Status CheckArgument(size_t bytes, const std::string& path) {
  if (bytes < kMaxArgumentBytes) return {};
  return FieldError(path, "takes " + std::to_string(bytes) + " bytes; the kernel takes less than " +
                              std::to_string(kMaxArgumentBytes) + " per string; pass it in a file or on stdin");
}

Status ReadArgv(const json& value, const std::string& path, Check& check, size_t& cost) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 1, std::numeric_limits<size_t>::max()));
  check.argv.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    CAISSON_TRY(std::string argument, ReadStringWithoutNul(value[i], PathOfElement(path, i)));
    CAISSON_TRY_VOID(CheckArgument(argument.size(), PathOfElement(path, i)));
    cost += ExecCost(argument.size());
    check.argv.push_back(std::move(argument));
  }
  if (check.argv[0].empty()) return FieldError(PathOfElement(path, 0), "must name a program");
  return {};
}

Status ReadEnv(const json& value, const std::string& path, Check& check, size_t& cost) {
  CAISSON_TRY_VOID(ExpectMap(value, path, std::numeric_limits<size_t>::max()));
  for (const auto& member : value.items()) {
    const std::string member_path = PathOfMember(path, member.key());
    if (!IsEnvName(member.key())) {
      return FieldError(member_path, "the name must be letters, digits and \"_\", and not begin with a digit");
    }
    CAISSON_TRY(std::string text, ReadStringWithoutNul(member.value(), member_path));
    CAISSON_TRY_VOID(CheckArgument(member.key().size() + 1 + text.size(), member_path));
    cost += ExecCost(member.key().size() + 1 + text.size());
    check.env.emplace_back(member.key(), std::move(text));
  }
  return {};
}

}  // namespace

Result<CommandLine> ReadCommandLine(const json& value, const std::string& path, size_t most_bytes) {
  Check check;
  CAISSON_TRY(const json* argv, RequireMember(value, path, "argv"));
  size_t cost = 0;
  CAISSON_TRY_VOID(ReadArgv(*argv, PathOfMember(path, "argv"), check, cost));
  if (const json* env = FindMember(value, "env")) {
    CAISSON_TRY_VOID(ReadEnv(*env, PathOfMember(path, "env"), check, cost));
  }
  if (cost > most_bytes) {
    return FieldError(path, "argv and env together take " + std::to_string(cost) +
                                " bytes as the kernel counts them; at most " + std::to_string(most_bytes) +
                                " are allowed");
  }
  return CommandLine{std::move(check.argv), std::move(check.env)};
}

Result<std::vector<std::pair<std::string, std::string>>> ReadEnvironment(const json& value, const std::string& path) {
  Check check;
  size_t cost = 0;
  CAISSON_TRY_VOID(ReadEnv(value, path, check, cost));
  if (cost > kMaxArgvEnvBytes) return FieldError(path, "is larger than the kernel takes");
  return std::move(check.env);
}

namespace {

Result<Check> ReadCheck(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"name", "tier", "argv", "env", "stdin", "timeout_ms", "cwd"}));
  Check check;
  CAISSON_TRY(const json* name, RequireMember(value, path, "name"));
  CAISSON_TRY(check.name, ReadWord(*name, PathOfMember(path, "name"), "._-", 64));
  CAISSON_TRY(const json* tier, RequireMember(value, path, "tier"));
  CAISSON_TRY(check.tier, ReadWord(*tier, PathOfMember(path, "tier"), "._-", 64));
  CAISSON_TRY(CommandLine line, ReadCommandLine(value, path));
  check.argv = std::move(line.argv);
  check.env = std::move(line.env);
  if (const json* text = FindMember(value, "stdin")) {
    CAISSON_TRY(check.stdin_text, ReadString(*text, PathOfMember(path, "stdin")));
  }
  if (const json* timeout = FindMember(value, "timeout_ms")) {
    CAISSON_TRY(check.timeout_ms, ReadInteger(*timeout, PathOfMember(path, "timeout_ms"), 1, kMaxTimeoutMs));
  }
  if (const json* cwd = FindMember(value, "cwd")) {
    CAISSON_TRY(check.cwd, ReadText(*cwd, PathOfMember(path, "cwd"), FaultInWorkingDirectory));
  }
  return check;
}

Result<std::vector<Check>> ReadChecks(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 0, kMaxChecks));
  if (value.empty()) return FieldError(path, "must not be empty; omit the field to use the language's default checks");
  std::vector<Check> checks;
  std::set<std::string> names;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string check_path = PathOfElement(path, i);
    CAISSON_TRY(Check check, ReadCheck(value[i], check_path));
    if (!names.insert(check.name).second) {
      return FieldError(PathOfMember(check_path, "name"), Quoted(check.name) + " is the name of an earlier check");
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

Result<int64_t> ReadCpu(const json& value, const std::string& path) {
  constexpr double kMinCpus = 0.01;
  CAISSON_TRY(const double cpus, ReadNumber(value, path));
  if (cpus < kMinCpus) return FieldError(path, std::string("must be at least 0.01 CPUs") + kOmitForDefault);
  if (cpus > kMaxCpus) return FieldError(path, "must be at most " + std::to_string(kMaxCpus));
  return static_cast<int64_t>(std::llround(cpus * 1000));
}

}  // namespace

Result<RequestedLimits> ReadLimits(const json& value, const std::string& path) {
  struct Field {
    const char* name;
    std::optional<int64_t> RequestedLimits::*member;
    int64_t maximum;
    int64_t least_bytes = 1;
  };
  static constexpr Field kFields[] = {
      {"command_timeout_ms", &RequestedLimits::command_timeout_ms, kMaxTimeoutMs},
      {"budget_ms", &RequestedLimits::budget_ms, kMaxTimeoutMs},
      {"memory_bytes", &RequestedLimits::memory_bytes, kMaxLimitBytes, kMinMemoryBytes},
      {"processes", &RequestedLimits::processes, kMaxProcesses},
      {"output_bytes", &RequestedLimits::output_bytes, kMaxLimitBytes},
      {"scratch_bytes", &RequestedLimits::scratch_bytes, kMaxLimitBytes},
      {"cpu_time_ms", &RequestedLimits::cpu_time_ms, kMaxTimeoutMs},
      {"stack_bytes", &RequestedLimits::stack_bytes, kMaxLimitBytes, policy::kMinStackBytes},
  };
  CAISSON_TRY_VOID(ExpectObject(value, path,
                                {"command_timeout_ms", "budget_ms", "cpu", "memory_bytes", "processes", "output_bytes",
                                 "scratch_bytes", "cpu_time_ms", "stack_bytes"}));
  RequestedLimits limits;
  for (const Field& field : kFields) {
    const json* member = FindMember(value, field.name);
    if (member == nullptr) continue;
    const std::string member_path = PathOfMember(path, field.name);
    CAISSON_TRY(const int64_t limit,
                ReadInteger(*member, member_path, std::numeric_limits<int64_t>::min(), field.maximum));
    if (limit < 1) return FieldError(member_path, std::string("must be at least 1") + kOmitForDefault);
    if (limit < field.least_bytes) {
      return FieldError(member_path, "must be at least " + std::to_string(field.least_bytes) + " (" +
                                         FormatSize(field.least_bytes) + ")" + kOmitForDefault);
    }
    limits.*field.member = limit;
  }
  if (const json* cpu = FindMember(value, "cpu")) {
    CAISSON_TRY(limits.cpu_millis, ReadCpu(*cpu, PathOfMember(path, "cpu")));
  }
  return limits;
}

Result<Network> ReadNetwork(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"mode", "allow", "deny", "ask", "credentials"}));
  CAISSON_TRY(const json* mode, RequireMember(value, path, "mode"));
  CAISSON_TRY(const size_t choice, ReadChoice(*mode, PathOfMember(path, "mode"), {"none", "allowlist"}));
  Network network;
  network.given = true;
  network.allowlist = choice == 1;
  for (const auto& [key, rules, fault] : {std::tuple{"allow", &network.allow, &FaultInAllowEntry},
                                          std::tuple{"deny", &network.deny, &policy::FaultInDenyEntry}}) {
    const json* list = FindMember(value, key);
    if (list == nullptr) continue;
    const std::string list_path = PathOfMember(path, key);
    CAISSON_TRY_VOID(ExpectArray(*list, list_path, 0, kMaxListEntries));
    if (!network.allowlist && !list->empty()) {
      return FieldError(list_path, "needs the mode \"allowlist\"; with mode \"none\" nothing can be allowed");
    }
    for (size_t i = 0; i < list->size(); ++i) {
      CAISSON_TRY(std::string entry, ReadText((*list)[i], PathOfElement(list_path, i), fault));
      rules->push_back(ToLowerAscii(std::move(entry)));
    }
  }
  if (const json* ask = FindMember(value, "ask")) {
    if (!ask->is_boolean()) return FieldError(PathOfMember(path, "ask"), "must be true or false");
    network.ask = ask->get<bool>();
    if (*network.ask && !network.allowlist)
      return FieldError(PathOfMember(path, "ask"), "needs the mode \"allowlist\"");
  }
  if (const json* list = FindMember(value, "credentials")) {
    const std::string list_path = PathOfMember(path, "credentials");
    CAISSON_TRY_VOID(ExpectArray(*list, list_path, 0, kMaxCredentials));
    if (!network.allowlist && !list->empty()) return FieldError(list_path, "needs the mode \"allowlist\"");
    for (size_t i = 0; i < list->size(); ++i) {
      CAISSON_TRY(std::string name, ReadText((*list)[i], PathOfElement(list_path, i), &policy::FaultInCredentialName));
      network.credentials.push_back(std::move(name));
    }
  }
  return network;
}

namespace {

Result<std::vector<Mount>> ReadMounts(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 0, kMaxMounts));
  std::vector<Mount> mounts;
  std::set<std::string> targets;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string mount_path = PathOfElement(path, i);
    CAISSON_TRY_VOID(ExpectObject(value[i], mount_path, {"source", "target", "access"}));
    Mount mount;
    CAISSON_TRY(const json* source, RequireMember(value[i], mount_path, "source"));
    CAISSON_TRY(mount.source, ReadText(*source, PathOfMember(mount_path, "source"), FaultInHostPath));
    CAISSON_TRY(const json* target, RequireMember(value[i], mount_path, "target"));
    CAISSON_TRY(mount.target, ReadText(*target, PathOfMember(mount_path, "target"), FaultInMountTarget));
    if (const json* access = FindMember(value[i], "access")) {
      constexpr std::array kAccess = {Access::kReadOnly, Access::kCopyOnWrite, Access::kReadWrite};
      CAISSON_TRY(const size_t choice, ReadChoice(*access, PathOfMember(mount_path, "access"), {"ro", "cow", "rw"}));
      mount.access = kAccess[choice];
    }
    if (!targets.insert(mount.target).second) {
      return FieldError(PathOfMember(mount_path, "target"),
                        Quoted(mount.target) + " is the target of an earlier mount");
    }
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

}  // namespace

Result<std::map<std::string, std::string>> ReadLabels(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectMap(value, path, kMaxLabels));
  std::map<std::string, std::string> labels;
  for (const auto& member : value.items()) {
    const std::string member_path = PathOfMember(path, member.key());
    if (!IsWord(member.key(), "._/-", 63)) {
      return FieldError(member_path, "the name must be 1 to 63 letters, digits or characters of \"._/-\"");
    }
    CAISSON_TRY(std::string text, ReadString(member.value(), member_path));
    if (text.size() > kMaxLabelValueBytes) {
      return FieldError(member_path, "takes " + std::to_string(text.size()) + " bytes; at most " +
                                         std::to_string(kMaxLabelValueBytes) + " are allowed");
    }
    labels.emplace(member.key(), std::move(text));
  }
  return labels;
}

namespace {

Result<std::vector<std::string>> ReadArtifacts(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 0, kMaxListEntries));
  std::vector<std::string> globs;
  for (size_t i = 0; i < value.size(); ++i) {
    CAISSON_TRY(std::string glob, ReadText(value[i], PathOfElement(path, i), FaultInArtifactGlob));
    globs.push_back(std::move(glob));
  }
  return globs;
}

Result<std::string> ReadCallbackUrl(const json& value, const std::string& path) {
  CAISSON_TRY(std::string url, ReadString(value, path));
  // SECURITY: the URL is not quoted, because URLs carry passwords and tokens and messages end up in logs.
  if (const Fault fault = FaultInCallbackUrl(url)) return FieldError(path, *fault);
  return url;
}

Result<Mode> ReadMode(const json& value, const std::string& path) {
  CAISSON_TRY(const size_t choice, ReadChoice(value, path, {"balanced", "strict"}));
  return choice == 0 ? Mode::kBalanced : Mode::kStrict;
}

}  // namespace

Result<std::string> ReadProfile(const json& value, const std::string& path) {
  CAISSON_TRY(std::string profile, ReadWord(value, path, "._-", 64));
  // SECURITY: a profile's name becomes a file name; "." and ".." must not.
  if (profile[0] == '.') return FieldError(path, "must not begin with \".\"");
  return profile;
}

// The name of an image, or its digest.
Result<std::string> ReadImage(const json& value, const std::string& path) {
  return ReadText(value, path, policy::FaultInImageReference);
}

Result<Request> ReadRequest(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(
      ExpectObject(value, path,
                   {"request_id", "attempt", "mode", "profile", "image", "source", "checks", "limits", "network",
                    "mounts", "artifacts", "idempotency_key", "priority", "labels", "callback_url", "deadline"}));
  Request request;
  if (FindMember(value, "request_id") == nullptr) request.request_id = GenerateRequestId();
  CAISSON_TRY_VOID(ReadOptional(value, path, "request_id", request.request_id, ReadWord, "._-", 128));
  CAISSON_TRY_VOID(ReadOptional(value, path, "attempt", request.attempt, ReadInteger, 1, kMaxAttempt));
  CAISSON_TRY_VOID(ReadOptional(value, path, "mode", request.mode, ReadMode));
  CAISSON_TRY_VOID(ReadOptional(value, path, "profile", request.profile, ReadProfile));
  CAISSON_TRY_VOID(ReadOptional(value, path, "image", request.image, ReadImage));
  CAISSON_TRY(request.source, ReadRequired(value, path, "source", ReadSource));
  CAISSON_TRY_VOID(ReadOptional(value, path, "checks", request.checks, ReadChecks));
  CAISSON_TRY_VOID(ReadOptional(value, path, "limits", request.limits, ReadLimits));
  CAISSON_TRY_VOID(ReadOptional(value, path, "network", request.network, ReadNetwork));
  CAISSON_TRY_VOID(ReadOptional(value, path, "mounts", request.mounts, ReadMounts));
  CAISSON_TRY_VOID(ReadOptional(value, path, "artifacts", request.artifacts, ReadArtifacts));
  CAISSON_TRY_VOID(
      ReadOptional(value, path, "idempotency_key", request.idempotency_key, ReadText, FaultInIdempotencyKey));
  CAISSON_TRY_VOID(ReadOptional(value, path, "priority", request.priority, ReadInteger, -kMaxPriority, kMaxPriority));
  CAISSON_TRY_VOID(ReadOptional(value, path, "labels", request.labels, ReadLabels));
  CAISSON_TRY_VOID(ReadOptional(value, path, "callback_url", request.callback_url, ReadCallbackUrl));
  CAISSON_TRY_VOID(ReadOptional(value, path, "deadline", request.deadline, ReadText, FaultInTimestamp));
  return request;
}

Result<Request> ParseRequest(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxRequestBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  return ReadRequest(root, "");
}

std::string GenerateRequestId() {
  std::array<unsigned char, 16> random{};
  // Once the pool is seeded, up to 256 bytes arrive completely or not at all, and no signal interrupts the call.
  CAISSON_CHECK(::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()));
  std::string id = "req-";
  for (const unsigned char byte : random) {
    constexpr char kHexDigits[] = "0123456789abcdef";
    id += kHexDigits[byte >> 4];
    id += kHexDigits[byte & 0xF];
  }
  return id;
}

bool IsValidRequestId(std::string_view id) { return IsWord(id, "._-", 128); }

}  // namespace caisson::verify
