#include "sandbox/write_rules.h"

#include <algorithm>
#include <iterator>

#include "sandbox/inside_paths.h"

namespace caisson::sandbox {

namespace {

bool IsHarmlessDevice(const std::string& path) {
  static constexpr const char* kDevices[] = {"/dev/null",    "/dev/zero", "/dev/full", "/dev/random",
                                             "/dev/urandom", "/dev/tty",  "/dev/ptmx"};
  return std::any_of(std::begin(kDevices), std::end(kDevices), [&](const char* device) { return path == device; }) ||
         IsBelow(path, "/dev/pts");
}

// Files of /proc/PID that programs write to tune themselves. The write is refused all the same (/proc is read-only),
// but it would harm no other process.
bool IsSelfTuning(const std::string& path) {
  if (!IsBelow(path, "/proc")) return false;
  const std::string name = path.substr(path.rfind('/') + 1);
  return name == "comm" || name == "oom_score_adj" || name == "coredump_filter" || name == "timerslack_ns";
}

}  // namespace

bool MayBeWritten(const WriteRules& rules, const std::string& path) {
  if (IsHarmlessDevice(path) || IsSelfTuning(path)) return true;
  // The innermost mount decides.
  const auto innermost = [&](const std::vector<std::string>& prefixes) {
    size_t length = 0;
    for (const std::string& prefix : prefixes) {
      if (IsBelow(path, prefix)) length = std::max(length, prefix.size());
    }
    return length;
  };
  const size_t writable = innermost(rules.writable);
  if (writable > 0 && writable > innermost(rules.read_only)) return true;
  for (const std::string& component : rules.ignored_components) {
    if ((path + "/").find("/" + component + "/") != std::string::npos) return true;
  }
  return false;
}

}  // namespace caisson::sandbox
