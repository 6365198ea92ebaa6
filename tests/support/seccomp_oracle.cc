#include "support/seccomp_oracle.h"

#include <linux/audit.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "linux/syscall_names.h"

namespace caisson::support {

using nlohmann::json;

namespace {

constexpr uint32_t kX32Bit = 0x40000000;

uint32_t Errno(int value) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(value); }

json ReadProfile(const std::string& path) {
  std::ifstream stream(path);
  return json::parse(stream);
}

SeccompOracle::Verdict Act(const json& entry) {
  if (entry["action"] == "SCMP_ACT_ALLOW") return {SECCOMP_RET_ALLOW, nullptr};
  if (entry["action"] == "SCMP_ACT_ERRNO") return {Errno(entry["errnoRet"]), nullptr};
  CAISSON_CHECK(entry["action"] == "SCMP_ACT_NOTIFY");
  return {SECCOMP_RET_USER_NOTIF, &entry["x-caisson"]};
}

}  // namespace

SeccompOracle::SeccompOracle(const std::string& directory, const std::string& profile) {
  json document = ReadProfile(directory + "/" + profile + ".json");
  Collect(document);
  if (document.contains("x-caisson-extends")) {
    const auto overrides = std::exchange(entries_, {});
    document = ReadProfile(directory + "/" + document["x-caisson-extends"].get<std::string>());
    Collect(document);
    for (const auto& [name, entries] : overrides) entries_[name] = entries;
  }
  default_action_ = Errno(document["defaultErrnoRet"]);
  foreign_ = document["x-caisson-foreign-architecture"];
  for (int number = 0; number < linux_sys::kSyscallNumberEnd; ++number) {
    for (const json& entry : EntriesOf(number)) rules_[number].push_back(Read(entry));
  }
}

SeccompOracle::Rule SeccompOracle::Read(const json& entry) {
  Rule rule{entry.value("/x-caisson/except"_json_pointer, false), {}, Act(entry)};
  for (const json& argument : entry.value("args", json::array()))
    rule.arguments.push_back({argument["index"], argument["value"], argument["valueTwo"]});
  return rule;
}

void SeccompOracle::Collect(const json& document) {
  for (const json& entry : document["syscalls"]) {
    for (const json& name : entry["names"]) entries_[name].push_back(entry);
  }
}

SeccompOracle::Verdict SeccompOracle::Decide(const seccomp_data& data) const {
  const auto number = static_cast<uint32_t>(data.nr);
  // -1 is the kernel's "no call" and not an x32 one.
  if (data.arch != AUDIT_ARCH_X86_64 || (number >= kX32Bit && number != UINT_MAX))
    return {SECCOMP_RET_USER_NOTIF, &foreign_};
  Verdict rest{default_action_, nullptr};
  const auto found = rules_.find(data.nr);
  if (found == rules_.end()) return rest;
  for (const Rule& rule : found->second) {
    if (rule.except) {
      rest = rule.verdict;
    } else if (std::all_of(rule.arguments.begin(), rule.arguments.end(), [&](const ArgumentRule& argument) {
                 return (data.args[argument.index] & argument.mask) == argument.value;
               })) {
      return rule.verdict;
    }
  }
  return rest;
}

const std::vector<json>& SeccompOracle::EntriesOf(int number) const {
  static const std::vector<json> kNone;
  const char* name = linux_sys::SyscallName(number);
  const auto found = name == nullptr ? entries_.end() : entries_.find(name);
  return found == entries_.end() ? kNone : found->second;
}

bool SaysTheSame(const sandbox::NotifyRule& rule, const json& extension) {
  using sandbox::Disposition;
  static const std::map<std::string, Disposition> kDispositions = {
      {"observe", Disposition::kObserve}, {"deny", Disposition::kDeny}, {"kill", Disposition::kKill}};
  return rule.disposition == kDispositions.at(extension["do"]) && rule.reason == extension["reason"] &&
         ClassName(rule.violation_class) == extension["class"] && rule.errno_value == extension.value("errno", 0);
}

}  // namespace caisson::support
