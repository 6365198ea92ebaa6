#include "policy/rules.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/words.h"
#include "policy/profile_reader.h"
#include "policy/profile_store.h"
#include "policy/yaml_fields.h"

namespace caisson::policy {

namespace {

constexpr const char* kSources[] = {"path", "files", "archive", "command"};
constexpr size_t kMaxTextBytes = 1000;

struct Program {
  std::string_view prefix;  // of the program's name, so that python3.11 and gcc-12 match too
  const char* language;
};
constexpr Program kPrograms[] = {{"python", "python"}, {"pypy", "python"}, {"pytest", "python"}, {"node", "javascript"},
                                 {"gcc", "c"},         {"cc", "c"},        {"clang++", "c++"},   {"clang", "c"},
                                 {"g++", "c++"},       {"c++", "c++"},     {"java", "java"},     {"go", "go"},
                                 {"cargo", "rust"},    {"rustc", "rust"},  {"ruby", "ruby"},     {"perl", "perl"},
                                 {"bash", "shell"},    {"dash", "shell"},  {"sh", "shell"},      {"make", "make"}};

// The possible answers of LanguageOf. A rule for any other language would never hold.
constexpr const char* kLanguages[] = {"python", "javascript", "c",    "c++",   "java", "go",
                                      "rust",   "ruby",       "perl", "shell", "make", "other"};

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

Fault FaultInId(const std::string& id) {
  return IsWord(id, "._-", 64) ? Fault() : Fault("is not 1 to 64 letters, digits, dots, underscores and hyphens");
}

// Overrides are compared with canonical paths, so a path with another spelling would never match.
Fault FaultInGrantedPath(const std::string& path) {
  if (Fault fault = FaultInHostPath(path)) return fault;
  return path == "/" ? std::nullopt : FaultInFileName(path.substr(1));
}

Fault FaultInSentence(const std::string& text) {
  if (text.empty()) return "says nothing";
  return text.size() > kMaxTextBytes ? Fault("is longer than 1000 bytes") : std::nullopt;
}

class RulesReader {
 public:
  RulesReader(const std::string& file, Rules& rules) : fields_(file), rules_(rules) {}

  Status Read(const YamlNode& document) {
    static constexpr const char* kKinds[] = {"policy"};
    static constexpr const char* kCommandLine[] = {"untrusted", "trusted"};
    const YamlKey keys[] = {
        {"version", [this](const YamlNode& node) { return fields_.Version(node); }},
        {"kind",
         [this](const YamlNode& node) -> Status {
           CAISSON_TRY_VOID(fields_.Choice(node, kKinds));
           return {};
         }},
        {"name", [this](const YamlNode& node) { return fields_.Checked(node, rules_.name, FaultInId); }},
        {"lock_owner",
         [this](const YamlNode& node) { return fields_.Checked(node, rules_.lock_owner, FaultInSentence); }},
        {"command_line",
         [this](const YamlNode& node) { return fields_.Choose(node, kCommandLine, rules_.command_line_trusted); }},
        {"strengths", [this](const YamlNode& node) { return Strengths(node); }},
        {"risk",
         [this](const YamlNode& node) {
           return fields_.Items(node, [this](const YamlNode& item) { return Risk(item); });
         }},
        {"overrides",
         [this](const YamlNode& node) {
           return fields_.Items(node, [this](const YamlNode& item) { return ReadOverride(item); });
         }},
    };
    CAISSON_TRY_VOID(fields_.Map(document, keys));
    for (const char* required : {"version", "kind", "name", "lock_owner", "risk"}) {
      if (document.Find(required) == nullptr) return fields_.At(document, std::string(required) + " is missing");
    }
    return {};
  }

 private:
  Status Strengths(const YamlNode& node) {
    std::vector<YamlKey> keys;
    for (size_t i = 0; i < kStrengthNames.size(); ++i) {
      keys.push_back({kStrengthNames[i], [this, i](const YamlNode& value) {
                        return fields_.Checked(value, rules_.strength_reasons[i], FaultInSentence);
                      }});
    }
    return fields_.Map(node, keys);
  }

  Status Risk(const YamlNode& node) {
    RiskRule rule;
    const YamlKey keys[] = {
        {"id", [&](const YamlNode& value) { return fields_.Checked(value, rule.id, FaultInId); }},
        {"when", [&](const YamlNode& value) { return When(value, rule); }},
        {"strength", [&](const YamlNode& value) { return fields_.Choose(value, kStrengthNames, rule.strength); }},
        {"approval", [&](const YamlNode& value) { return fields_.Checked(value, rule.approval, FaultInId); }},
        {"why", [&](const YamlNode& value) { return fields_.Checked(value, rule.why, FaultInSentence); }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    if (rule.id.empty() || rule.why.empty() || node.Find("strength") == nullptr)
      return fields_.At(node, "a rule needs id, strength and why");
    for (const RiskRule& other : rules_.risk) {
      if (other.id == rule.id) return fields_.At(node, "a second rule with the id " + Quoted(rule.id));
    }
    rules_.risk.push_back(std::move(rule));
    return {};
  }

  Status When(const YamlNode& node, RiskRule& rule) {
    std::vector<std::string> asks;
    const YamlKey keys[] = {
        {"sources", [&](const YamlNode& value) { return fields_.Choices(value, rule.sources, kSources); }},
        {"languages", [&](const YamlNode& value) { return fields_.Choices(value, rule.languages, kLanguages); }},
        {"asks", [&](const YamlNode& value) { return fields_.Choices(value, asks, kAskNames); }},
        {"labels",
         [&](const YamlNode& value) -> Status {
           if (value.kind != YamlNode::Kind::kMap) return fields_.At(value, "expected labels and values");
           for (const auto& field : value.fields) {
             // A rule with a label that no request can have would never hold.
             if (!IsWord(field.key.text, "._/-", 63)) {
               return fields_.At(field.key, Quoted(field.key.text) +
                                                " cannot be a label: 1 to 63 letters, digits or characters of ._/-");
             }
             CAISSON_TRY(rule.labels[field.key.text], fields_.Text(field.value));
           }
           return {};
         }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    for (size_t i = 0; i < kAskNames.size(); ++i) {
      if (std::find(asks.begin(), asks.end(), kAskNames[i]) != asks.end()) rule.asks.push_back(static_cast<Ask>(i));
    }
    return {};
  }

  Status ReadOverride(const YamlNode& node) {
    Override one;
    std::vector<Grant> grants;
    const YamlKey keys[] = {
        {"id", [&](const YamlNode& value) { return fields_.Checked(value, one.id, FaultInId); }},
        {"role", [&](const YamlNode& value) { return fields_.Checked(value, one.role, FaultInId); }},
        {"request", [&](const YamlNode& value) { return fields_.Checked(value, one.request, FaultInId); }},
        {"reason", [&](const YamlNode& value) { return fields_.Checked(value, one.reason, FaultInSentence); }},
        {"granted_by", [&](const YamlNode& value) { return fields_.Checked(value, one.granted_by, FaultInSentence); }},
        {"expires",
         [&](const YamlNode& value) {
           return fields_.Checked(value, one.expires, [](const std::string& text) { return FaultInTimestamp(text); });
         }},
        {"grant", [&](const YamlNode& value) { return ReadGrant(value, grants); }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    for (const char* required : {"id", "reason", "granted_by", "expires", "grant"}) {
      if (node.Find(required) == nullptr) return fields_.At(node, std::string("an override needs ") + required);
    }
    if (one.role.empty() == one.request.empty())
      return fields_.At(node, "an override is for a role or for a request: give one of the two");
    if (one.id == kCommandLineId) return fields_.At(node, Quoted(one.id) + " is what flags are recorded as");
    for (const Override& other : rules_.overrides) {
      if (other.id == one.id) return fields_.At(node, "a second override with the id " + Quoted(one.id));
    }
    one.expires_at = SecondsSinceEpoch(one.expires);
    for (Grant& grant : grants) {
      one.grant = std::move(grant);
      rules_.overrides.push_back(one);
    }
    return {};
  }

  Status ReadGrant(const YamlNode& node, std::vector<Grant>& grants) {
    const YamlKey keys[] = {
        {"raise_limit",
         [&](const YamlNode& value) -> Status {
           std::vector<YamlKey> limits;
           for (const LimitField& field : kLimitFields) {
             limits.push_back({field.name, [&grants, &field, this](const YamlNode& amount) -> Status {
                                 CAISSON_TRY(const std::string text, fields_.Text(amount));
                                 Result<int64_t> limit = ReadLimit(field, text);
                                 if (!limit) return fields_.At(amount, limit.error().message);
                                 grants.emplace_back(RaiseLimit{&field, *limit});
                                 return {};
                               }});
           }
           return fields_.Map(value, limits);
         }},
        {"write_path",
         [&](const YamlNode& value) -> Status {
           WritePath grant;
           CAISSON_TRY_VOID(fields_.Checked(value, grant.path, FaultInGrantedPath));
           grants.emplace_back(std::move(grant));
           return {};
         }},
        {"sensitive_path",
         [&](const YamlNode& value) -> Status {
           SensitivePath grant;
           const YamlKey parts[] = {
               {"path", [&](const YamlNode& path) { return fields_.Checked(path, grant.path, FaultInGrantedPath); }},
               {"access", [&](const YamlNode& word) { return fields_.Choose(word, kAccessNames, grant.access); }},
           };
           CAISSON_TRY_VOID(fields_.Map(value, parts));
           if (grant.path.empty()) return fields_.At(value, "a sensitive path needs its path");
           grants.emplace_back(std::move(grant));
           return {};
         }},
        {"allow_syscall",
         [&](const YamlNode& value) -> Status {
           std::vector<std::string> names;
           CAISSON_TRY_VOID(fields_.Texts(value, names, FaultInSyscallName));
           for (std::string& name : names) grants.emplace_back(AllowSyscall{std::move(name)});
           return {};
         }},
        {"allow_network",
         [&](const YamlNode& value) -> Status {
           std::vector<std::string> hosts;
           CAISSON_TRY_VOID(
               fields_.Texts(value, hosts, [](const std::string& host) { return FaultInAllowEntry(host); }));
           for (std::string& host : hosts) grants.emplace_back(AllowNetwork{std::move(host)});
           return {};
         }},
        {"allow_host_port",
         [&](const YamlNode& value) -> Status {
           std::vector<std::string> ports;
           CAISSON_TRY_VOID(fields_.Texts(value, ports, [](const std::string& port) { return FaultInPort(port); }));
           for (const std::string& port : ports)
             grants.emplace_back(AllowHostPort{static_cast<uint16_t>(std::stoul(port))});
           return {};
         }},
        {"allow_credential",
         [&](const YamlNode& value) -> Status {
           std::vector<std::string> names;
           CAISSON_TRY_VOID(
               fields_.Texts(value, names, [](const std::string& name) { return FaultInCredentialName(name); }));
           for (std::string& name : names) grants.emplace_back(AllowCredential{std::move(name)});
           return {};
         }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    if (node.fields.size() != 1 || grants.empty()) return fields_.At(node, "a grant is of exactly one type");
    return {};
  }

  YamlFields fields_;
  Rules& rules_;
};

}  // namespace

bool RiskRule::Matches(const RequestFacts& facts) const {
  const auto lists = [](const std::vector<std::string>& list, const std::string& word) {
    return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
  };
  const bool asked =
      asks.empty() || std::any_of(asks.begin(), asks.end(), [&](Ask ask) { return facts.asks.count(ask) > 0; });
  const bool labelled = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
    const auto found = facts.labels.find(label.first);
    return found != facts.labels.end() && found->second == label.second;
  });
  return lists(sources, facts.source) && lists(languages, facts.language) && asked && labelled;
}

bool IsRulesDocument(std::string_view text) {
  const Result<YamlNode> document = ReadYaml(text, "");
  const YamlNode* kind = document ? document->Find("kind") : nullptr;
  return kind != nullptr && kind->text == "policy";
}

Result<Rules> ReadRules(std::string_view text, const std::string& file) {
  CAISSON_TRY(const YamlNode document, ReadYaml(text, file));
  Rules rules;
  rules.command_line_trusted = false;  // a file must state its trust explicitly
  rules.strength_reasons = BuiltInRules().strength_reasons;
  CAISSON_TRY_VOID(RulesReader(file, rules).Read(document));
  return rules;
}

Result<Rules> LoadRules(const std::string& path, const std::string& installed) {
  std::string file = path;
  if (file.empty()) {
    if (::access(installed.c_str(), F_OK) != 0 && errno == ENOENT) return BuiltInRules();
    file = installed;
  }
  CAISSON_TRY(const std::string text, ReadPolicyFile(file));
  return ReadRules(text, file);
}

std::string LanguageOf(const std::vector<std::string>& argv) {
  const std::string_view name = argv.empty() ? "" : BaseName(argv[0]);
  for (const Program& program : kPrograms) {
    if (name.substr(0, program.prefix.size()) != program.prefix) continue;
    const std::string_view rest = name.substr(program.prefix.size());
    if (rest.empty() || rest.find_first_not_of("0123456789.-") == std::string_view::npos) return program.language;
  }
  return "other";
}

bool IsInstallStep(std::string_view tier, const std::vector<std::string>& argv) {
  if (tier == "install") return true;
  if (argv.empty()) return false;
  const auto says = [&](std::initializer_list<const char*> words) {
    return std::any_of(argv.begin() + 1, argv.end(), [&](const std::string& argument) {
      return std::any_of(words.begin(), words.end(), [&](const char* word) { return argument == word; });
    });
  };
  const std::string_view name = BaseName(argv[0]);
  for (const char* installer : {"pip", "npm", "yarn", "pnpm", "gem", "cargo", "apt-get", "apt", "go"}) {
    const bool same = name == installer || (name.substr(0, 3) == "pip" && std::strcmp(installer, "pip") == 0);
    if (same) return says({"install", "i", "ci", "add", "get"});
  }
  return LanguageOf(argv) == "python" && says({"pip", "ensurepip"}) && says({"install", "-U"});
}

}  // namespace caisson::policy
