#include "sandbox/probes.h"

#include <algorithm>
#include <string_view>

#include "sandbox/inside_paths.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

const std::string* FindText(const Violation& violation, std::string_view key) {
  const std::string* found = nullptr;
  for (const auto& [name, value] : violation.evidence) {
    if (name != key) continue;
    if (found != nullptr) return nullptr;  // two paths: an entry describes only one
    found = std::get_if<std::string>(&value);
  }
  return found;
}

// Calls that name one file and can change nothing else.
bool NamesOneFile(const std::string& call) {
  static constexpr std::string_view kCalls[] = {"open", "openat", "openat2", "creat", "mkdir", "mkdirat"};
  return std::find(std::begin(kCalls), std::end(kCalls), call) != std::end(kCalls);
}

bool IsRefusedCall(const Violation& violation) {
  const std::string* answer = FindText(violation, "answer");
  return violation.violation_class == ViolationClass::kSyscall && violation.confidence == Confidence::kProven &&
         answer != nullptr && *answer != "killed";
}

// The path of a refused write, or nullptr.
const std::string* FindWrittenPath(const Violation& violation) {
  if (violation.violation_class != ViolationClass::kFilesystemWrite || violation.reason != "fs.write") return nullptr;
  const std::string* call = FindText(violation, "syscall");
  const std::string* path = FindText(violation, "path");
  if (call == nullptr || path == nullptr) return nullptr;
  if (CAISSON_LEFT_OUT("probe_paths")) return path;
  return NamesOneFile(*call) && NormalizePath(*path) == *path ? path : nullptr;
}

}  // namespace

const Probe* FindProbe(std::span<const Probe> probes, const Violation& violation) {
  if (probes.empty()) return nullptr;
  if (IsRefusedCall(violation)) {
    for (const Probe& probe : probes) {
      if (!probe.reason.empty() && probe.reason == violation.reason) return &probe;
    }
    return nullptr;
  }
  const std::string* path = FindWrittenPath(violation);
  if (path == nullptr) return nullptr;
  for (const Probe& probe : probes) {
    if (!probe.path.empty() && (IsBelow(*path, probe.path) || CAISSON_LEFT_OUT("probe_paths"))) return &probe;
  }
  return nullptr;
}

void AddNotice(std::vector<Notice>& notices, const Probe& probe, Violation violation) {
  const std::string& name = probe.reason.empty() ? probe.path : probe.reason;
  for (Notice& notice : notices) {
    if (notice.probe != name) continue;
    ++notice.count;
    return;
  }
  notices.push_back({name, probe.why, 1, violation.time_ms, violation.pid, std::move(violation.evidence)});
}

}  // namespace caisson::sandbox
