#include "agent/own_group.h"

#include <fcntl.h>
#include <unistd.h>

#include "linux/files.h"

namespace caisson::agent {

namespace {

UniqueFd OpenDirectory(const char* path) { return UniqueFd(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)); }

int64_t ReadNumber(const UniqueFd& group, const char* file, const char* key) {
  const Result<std::string> text = linux_sys::ReadSmallFile(group.get(), file);
  return text ? linux_sys::FindNumber(*text, key) : -1;
}

std::optional<int64_t> Known(int64_t value) { return value < 0 ? std::nullopt : std::optional(value); }

}  // namespace

OwnGroup OwnGroup::Open() {
  OwnGroup group;
  group.v2_ = ::access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
  group.memory_ = OpenDirectory(group.v2_ ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
  group.pids_ = OpenDirectory(group.v2_ ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids");
  return group;
}

std::optional<sandbox::GroupCounters> OwnGroup::Read() const {
  if (!memory_ || !pids_) return std::nullopt;
  sandbox::GroupCounters counters;
  counters.oom_kills = ReadNumber(memory_, v2_ ? "memory.events" : "memory.oom_control", "oom_kill");
  counters.refused_forks = ReadNumber(pids_, "pids.events", "max");
  if (counters.oom_kills < 0 || counters.refused_forks < 0) return std::nullopt;
  counters.peak_memory_bytes = Known(ReadNumber(memory_, v2_ ? "memory.peak" : "memory.max_usage_in_bytes", ""));
  return counters;
}

std::optional<sandbox::GroupCounters> OwnGroup::ReadSince(const std::optional<sandbox::GroupCounters>& before) const {
  std::optional<sandbox::GroupCounters> counters = Read();
  if (!counters || !before) return std::nullopt;
  counters->oom_kills -= before->oom_kills;
  counters->refused_forks -= before->refused_forks;
  return counters;
}

}  // namespace caisson::agent
