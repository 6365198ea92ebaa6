#include "runtime/witnessed/cgroup_counters.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include "linux/files.h"

namespace caisson::runtime::witnessed {

namespace {

constexpr char kMount[] = "/sys/fs/cgroup";

// The path of the group in the hierarchy that has `controller`; of the unified one for "". Absent when there is none.
std::optional<std::string> FindGroup(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string names = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (names == ",," ? controller.empty() : names.find("," + std::string(controller) + ",") != names.npos)
      return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

Result<UniqueFd> OpenGroup(const std::string& text, const char* controller) {
  const std::optional<std::string> path = FindGroup(text, controller);
  if (!path || *path == "/")
    return Error::Unsupported(std::string("wall cgroup: the container has no group of the controller ") + controller +
                              "; its limits would not hold");
  return linux_sys::Open(std::string(kMount) + "/" + controller + *path, O_PATH | O_DIRECTORY);
}

int64_t ReadNumber(const UniqueFd& group, const char* file, std::string_view key) {
  const Result<std::string> text = linux_sys::ReadSmallFile(group.get(), file);
  return text ? linux_sys::FindNumber(*text, key) : -1;
}

std::optional<int64_t> Optional(int64_t value, int64_t divisor = 1) {
  return value < 0 ? std::nullopt : std::optional(value / divisor);
}

}  // namespace

Result<CgroupCounters> CgroupCounters::Of(pid_t pid) {
  CAISSON_TRY(const std::string text,
              linux_sys::ReadSmallFile(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/cgroup").c_str()));
  CgroupCounters counters;
  if (FindGroup(text, "memory")) {
    counters.driver_ = FindGroup(text, "") ? "hybrid" : "v1";
    CAISSON_TRY(counters.memory_, OpenGroup(text, "memory"));
    CAISSON_TRY(counters.pids_, OpenGroup(text, "pids"));
    CAISSON_TRY(counters.cpu_, OpenGroup(text, "cpu"));
    CAISSON_TRY(counters.cpuacct_, OpenGroup(text, "cpuacct"));
    return counters;
  }
  const std::optional<std::string> path = FindGroup(text, "");
  if (!path || *path == "/") return Error::Unsupported("wall cgroup: the container is in no group of its own");
  counters.v2_ = true;
  counters.driver_ = "v2";
  for (UniqueFd* group : {&counters.memory_, &counters.pids_, &counters.cpu_}) {
    CAISSON_TRY(*group, linux_sys::Open(kMount + *path, O_PATH | O_DIRECTORY));
  }
  return counters;
}

Result<sandbox::GroupCounters> CgroupCounters::Read() const {
  sandbox::GroupCounters counters;
  counters.oom_kills = ReadNumber(memory_, v2_ ? "memory.events" : "memory.oom_control", "oom_kill");
  counters.refused_forks = ReadNumber(pids_, "pids.events", "max");
  if (counters.oom_kills < 0 || counters.refused_forks < 0)
    return Error::System(EIO, "the counters of the container's cgroup cannot be read");
  counters.peak_memory_bytes = Optional(ReadNumber(memory_, v2_ ? "memory.peak" : "memory.max_usage_in_bytes", ""));
  counters.peak_processes = Optional(ReadNumber(pids_, "pids.peak", ""));
  counters.cpu_ms = v2_ ? Optional(ReadNumber(cpu_, "cpu.stat", "usage_usec"), 1000)
                        : Optional(ReadNumber(cpuacct_, "cpuacct.usage", ""), 1'000'000);
  counters.throttled_ms = v2_ ? Optional(ReadNumber(cpu_, "cpu.stat", "throttled_usec"), 1000)
                              : Optional(ReadNumber(cpu_, "cpu.stat", "throttled_time"), 1'000'000);
  return counters;
}

bool CgroupCounters::RestartMemoryPeak() const {
  return !v2_ && linux_sys::WriteSmallFile(memory_.get(), "memory.max_usage_in_bytes", "0").has_value();
}

int64_t CgroupCounters::ReadMemoryLimit() const {
  return ReadNumber(memory_, v2_ ? "memory.max" : "memory.limit_in_bytes", "");
}

int64_t CgroupCounters::ReadProcessLimit() const { return ReadNumber(pids_, "pids.max", ""); }

bool CgroupCounters::HasCpuLimit() const {
  if (!v2_) return ReadNumber(cpu_, "cpu.cfs_quota_us", "") > 0;
  const Result<std::string> text = linux_sys::ReadSmallFile(cpu_.get(), "cpu.max");
  return text && text->compare(0, 3, "max") != 0;
}

}  // namespace caisson::runtime::witnessed
