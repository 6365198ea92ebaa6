#include "seccomp_policy.h"

#include <linux/seccomp.h>
#include <seccomp.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

namespace caisson::tools {
namespace {

using nlohmann::json;

constexpr uint64_t kMask32 = 0xffffffff;
constexpr uint64_t kMask64 = ~uint64_t{0};
constexpr int kMaxErrno = 4095;

// Calls that libseccomp 2.5 does not know yet. A rule or an event about one must still be able to name it.
constexpr std::pair<const char*, int> kNewerSyscalls[] = {
    {"uretprobe", 335},        {"uprobe", 336},        {"cachestat", 451},         {"fchmodat2", 452},
    {"map_shadow_stack", 453}, {"futex_wake", 454},    {"futex_wait", 455},        {"futex_requeue", 456},
    {"statmount", 457},        {"listmount", 458},     {"lsm_get_self_attr", 459}, {"lsm_set_self_attr", 460},
    {"lsm_list_modules", 461}, {"mseal", 462},         {"setxattrat", 463},        {"getxattrat", 464},
    {"listxattrat", 465},      {"removexattrat", 466}, {"open_tree_attr", 467},    {"file_getattr", 468},
    {"file_setattr", 469},
};

constexpr std::pair<std::string_view, const char*> kDispositions[] = {
    {"observe", "kObserve"}, {"deny", "kDeny"}, {"kill", "kKill"}};

constexpr std::pair<std::string_view, const char*> kClasses[] = {{"SyscallViolation", "kSyscall"},
                                                                 {"FilesystemWriteViolation", "kFilesystemWrite"},
                                                                 {"NetworkAccessViolation", "kNetworkAccess"},
                                                                 {"ProcessLimitViolation", "kProcessLimit"}};

int ResolveSyscall(const std::string& name) {
  for (const auto& [newer_name, number] : kNewerSyscalls) {
    if (name == newer_name) return number;
  }
  const int number = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, name.c_str());
  // Negative numbers are calls that only other architectures have.
  if (number < 0 || number >= kSyscallNumberEnd) throw PolicyError("unknown system call '" + name + "'");
  return number;
}

void RequireKeys(const json& object, std::string_view where, std::initializer_list<std::string_view> known) {
  if (!object.is_object()) throw PolicyError(std::string(where) + " is not an object");
  for (const auto& item : object.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      throw PolicyError("unknown key '" + item.key() + "' in " + std::string(where));
    }
  }
}

const json& Member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw PolicyError(std::string("'") + key + "' is missing");
  return *found;
}

std::string StringMember(const json& object, const char* key) {
  const json& value = Member(object, key);
  if (!value.is_string()) throw PolicyError(std::string("'") + key + "' is not a string");
  return value.get<std::string>();
}

uint64_t NumberMember(const json& object, const char* key, uint64_t max) {
  const json& value = Member(object, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > max) {
    throw PolicyError(std::string("'") + key + "' is not a whole number between 0 and " + std::to_string(max));
  }
  return value.get<uint64_t>();
}

const json& ArrayMember(const json& object, const char* key) {
  const json& value = Member(object, key);
  if (!value.is_array() || value.empty()) throw PolicyError(std::string("'") + key + "' is not a filled list");
  return value;
}

template <size_t N>
const char* Choose(const std::pair<std::string_view, const char*> (&choices)[N], const json& object, const char* key) {
  const std::string value = StringMember(object, key);
  for (const auto& [name, enumerator] : choices) {
    if (value == name) return enumerator;
  }
  throw PolicyError(std::string("unknown '") + key + "': '" + value + "'");
}

PolicyNotice ParseNotice(const json& extension) {
  PolicyNotice notice;
  notice.disposition = Choose(kDispositions, extension, "do");
  notice.violation_class = Choose(kClasses, extension, "class");
  notice.reason = StringMember(extension, "reason");
  // The reason is written into C++ source as it stands.
  if (notice.reason.empty() || notice.reason.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.") != std::string::npos) {
    throw PolicyError("'reason' is not made of a-z, '_' and '.'");
  }
  if (notice.disposition == "kDeny") {
    notice.errno_value = static_cast<unsigned>(NumberMember(extension, "errno", kMaxErrno));
    // Answering "no error" would tell the workload that the call had been made.
    if (notice.errno_value == 0) throw PolicyError("'errno' of a denied call is 0");
  } else if (extension.contains("errno")) {
    throw PolicyError("'errno' is only for denied calls");
  }
  return notice;
}

PolicyTest ParseTest(const json& object) {
  RequireKeys(object, "an argument", {"index", "value", "valueTwo", "op"});
  // The other operators compare all 64 bits of a register of which the kernel reads 32: a set high bit would bypass
  // them.
  if (StringMember(object, "op") != "SCMP_CMP_MASKED_EQ") throw PolicyError("'op' is not SCMP_CMP_MASKED_EQ");
  PolicyTest test;
  test.index = static_cast<unsigned>(NumberMember(object, "index", 5));
  test.mask = NumberMember(object, "value", kMask64);
  test.value = NumberMember(object, "valueTwo", kMask64);
  if (test.mask == 0 || (test.mask > kMask32 && test.mask != kMask64)) {
    throw PolicyError("a mask ('value') must have 32 bits, or all 64 for a pointer");
  }
  if ((test.value & ~test.mask) != 0) throw PolicyError("'valueTwo' has bits outside the mask: it never matches");
  return test;
}

// `ignored`: the call is mere advice to the kernel, so "no error" is a truthful answer although the call is not made.
uint32_t ParseAction(const json& object, const char* action_key, const char* errno_key, bool ignored) {
  const std::string action = StringMember(object, action_key);
  if (action == "SCMP_ACT_ERRNO") {
    const uint64_t errno_value = NumberMember(object, errno_key, kMaxErrno);
    if (errno_value == 0 && !ignored) {
      throw PolicyError(std::string("'") + errno_key + "' is 0: the call would seem to succeed; say 'ignored'");
    }
    if (errno_value != 0 && ignored) throw PolicyError("'ignored' with an error");
    return SECCOMP_RET_ERRNO | static_cast<uint32_t>(errno_value);
  }
  if (object.contains(errno_key)) throw PolicyError(std::string("'") + errno_key + "' is only for SCMP_ACT_ERRNO");
  if (ignored) throw PolicyError("'ignored' is only for SCMP_ACT_ERRNO");
  if (action == "SCMP_ACT_ALLOW") return SECCOMP_RET_ALLOW;
  if (action == "SCMP_ACT_NOTIFY") return SECCOMP_RET_USER_NOTIF;
  throw PolicyError("unknown '" + std::string(action_key) + "': '" + action + "'");
}

void AddRule(std::vector<PolicyRule>& rules, const PolicyRule& rule, bool except) {
  if (!rules.empty() && rules.back().tests.empty()) throw PolicyError("the rule before it matches every call");
  if (rule.tests.empty() && except != !rules.empty()) {
    throw PolicyError(except ? "'except' without an earlier rule" : "overrides the earlier rules; say 'except'");
  }
  rules.push_back(rule);
}

void ParseEntry(const json& entry, std::map<int, std::vector<PolicyRule>>& rules) {
  RequireKeys(entry, "a rule", {"names", "action", "errnoRet", "args", "comment", "x-caisson"});
  StringMember(entry, "comment");
  PolicyRule rule;
  const bool ignored = entry.contains("x-caisson") && entry["x-caisson"].contains("ignored");
  if (ignored && entry["x-caisson"]["ignored"] != true) throw PolicyError("'ignored' is not true");
  rule.action = ParseAction(entry, "action", "errnoRet", ignored);
  std::set<unsigned> indexes;
  if (entry.contains("args")) {
    for (const json& argument : ArrayMember(entry, "args")) {
      rule.tests.push_back(ParseTest(argument));
      if (!indexes.insert(rule.tests.back().index).second) throw PolicyError("an argument is tested twice");
    }
  }
  if (rule.tests.size() > Policy::kMaxTests) throw PolicyError("too many arguments are tested");

  bool except = false;
  const bool notify = rule.action == SECCOMP_RET_USER_NOTIF;
  if (entry.contains("x-caisson")) {
    const json& extension = entry["x-caisson"];
    if (notify) {
      RequireKeys(extension, "'x-caisson'", {"do", "class", "reason", "errno", "except"});
      rule.notice = ParseNotice(extension);
    } else {
      RequireKeys(extension, "'x-caisson' of a rule that does not notify", {"except", "ignored"});
    }
    if (extension.contains("except")) {
      if (extension["except"] != true) throw PolicyError("'except' is not true");
      except = true;
    }
  } else if (notify) {
    throw PolicyError("SCMP_ACT_NOTIFY without 'x-caisson'");
  }
  if (except && !rule.tests.empty()) throw PolicyError("'except' with 'args'");

  for (const json& name : ArrayMember(entry, "names")) {
    if (!name.is_string()) throw PolicyError("a name is not a string");
    AddRule(rules[ResolveSyscall(name.get<std::string>())], rule, except);
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream || text.empty()) throw PolicyError("cannot be read");
  return text;
}

// The parser would silently keep the last of two equal keys.
json ParseWithoutDuplicates(const std::string& text) {
  std::vector<std::set<std::string>> open_objects;
  return json::parse(text, [&open_objects](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && !open_objects.back().insert(parsed.get<std::string>()).second) {
      throw PolicyError("key '" + parsed.get<std::string>() + "' is written twice");
    }
    return true;
  });
}

void ParseRules(const json& document, std::map<int, std::vector<PolicyRule>>& rules) {
  for (const json& entry : ArrayMember(document, "syscalls")) {
    try {
      ParseEntry(entry, rules);
    } catch (const PolicyError& error) {
      throw PolicyError(std::string(error.what()) + ", in " + entry.dump());
    }
  }
}

Policy ParsePolicy(const std::string& text, const json& document) {
  // A base that extends another file is refused here as an unknown key: one step keeps files readable.
  RequireKeys(document, "a policy",
              {"defaultAction", "defaultErrnoRet", "architectures", "syscalls", "x-caisson-foreign-architecture"});
  Policy policy;
  policy.source = text;
  policy.default_action = ParseAction(document, "defaultAction", "defaultErrnoRet", false);
  if ((policy.default_action & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_ERRNO) {
    throw PolicyError("'defaultAction' is not SCMP_ACT_ERRNO: unlisted calls must be refused");
  }
  if (Member(document, "architectures") != json::array({"SCMP_ARCH_X86_64"})) {
    throw PolicyError("'architectures' is not [\"SCMP_ARCH_X86_64\"]");
  }
  const json& foreign = Member(document, "x-caisson-foreign-architecture");
  RequireKeys(foreign, "'x-caisson-foreign-architecture'", {"do", "class", "reason"});
  policy.foreign = ParseNotice(foreign);
  if (policy.foreign.disposition != "kKill") throw PolicyError("a foreign architecture is not killed");
  ParseRules(document, policy.rules);
  return policy;
}

// Every call that the extending file mentions loses all its rules of the base.
Policy ParseExtension(const std::string& path, const std::string& text, const json& document) {
  RequireKeys(document, "an extending policy", {"x-caisson-extends", "syscalls"});
  const std::string base_name = StringMember(document, "x-caisson-extends");
  const std::string base_path = (std::filesystem::path(path).parent_path() / base_name).string();
  const std::string base_text = ReadFile(base_path);
  Policy policy = ParsePolicy(base_text, ParseWithoutDuplicates(base_text));
  std::map<int, std::vector<PolicyRule>> overrides;
  ParseRules(document, overrides);
  for (auto& [number, rules] : overrides) policy.rules[number] = std::move(rules);
  policy.source = text + policy.source;
  return policy;
}

}  // namespace

Policy LoadPolicy(const std::string& path) {
  try {
    const std::string text = ReadFile(path);
    const json document = ParseWithoutDuplicates(text);
    const bool extends = document.is_object() && document.contains("x-caisson-extends");
    return extends ? ParseExtension(path, text, document) : ParsePolicy(text, document);
  } catch (const std::exception& error) {
    throw PolicyError(path + ": " + error.what());
  }
}

std::string SyscallNameOf(int number) {
  for (const auto& [name, newer_number] : kNewerSyscalls) {
    if (number == newer_number) return name;
  }
  const std::unique_ptr<char, decltype(&std::free)> name(seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, number),
                                                         &std::free);
  return name ? name.get() : "";
}

}  // namespace caisson::tools
