#include "session/layer_meter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/clock.h"
#include "base/units.h"
#include "linux/syscalls.h"

namespace caisson::session {

namespace {

constexpr int kEntriesPerStep = 4000;
constexpr size_t kDeepest = 256;
constexpr int64_t kShortestPauseMs = 1000;
constexpr int64_t kLongestPauseMs = 30'000;
constexpr int64_t kMostLockedMeanwhile = 1000;
constexpr int64_t kPausePerCost = 20;  // so that walking takes at most a twentieth of one CPU

// SECURITY: by descriptor, so that exactly the directory that was looked at is changed, and no link is followed.
int ChangeMode(const UniqueFd& place, mode_t mode) {
  return ::chmod(("/proc/self/fd/" + std::to_string(place.get())).c_str(), mode);
}

}  // namespace

LayerMeter::Level::~Level() {
  struct stat info {};
  // Unless the workload has changed it meanwhile.
  if (unlocked && ::fstat(unlocked.get(), &info) == 0 && (info.st_mode & 07777) == (mode | 0500))
    ChangeMode(unlocked, mode);
}

std::string LayerMeter::Enter(UniqueFd directory, Level level) {
  level.entries.reset(::fdopendir(directory.get()));
  if (!level.entries) return "a directory cannot be read";
  directory.Release();
  levels_.push_back(std::move(level));
  return "";
}

std::string LayerMeter::Look(int directory, const char* name) {
  struct stat info {};
  if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return "";  // removed meanwhile
    // The workload has taken the directory's permissions away since it was entered; the next walk unlocks it. One that
    // does so in every walk keeps its files from being counted, which is a fault.
    if (errno == EACCES && ++locked_meanwhile_ <= kMostLockedMeanwhile) return "";
    return "an entry cannot be looked at";
  }
  if (++entries_ > limits_.entries) return "more than " + std::to_string(limits_.entries) + " entries";
  // Each name of a file with several counts as a part of it.
  const int64_t size = int64_t{info.st_blocks} * 512;
  bytes_ += S_ISDIR(info.st_mode) ? size : size / std::max<int64_t>(1, static_cast<int64_t>(info.st_nlink));
  if (bytes_ > limits_.bytes) return "more than " + FormatSize(limits_.bytes);
  if (!S_ISDIR(info.st_mode)) return "";
  if (levels_.size() >= kDeepest) return "more than " + std::to_string(kDeepest) + " directories deep";
  Level level;
  struct open_how how {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  UniqueFd below(linux_sys::OpenAt2(directory, name, how));
  // Without the permission to search, the directory opens and its entries cannot be looked at. The mode may have
  // changed since it was looked at.
  const bool is_locked = below ? (info.st_mode & 0500) != 0500 : errno == EACCES;
  if (is_locked && ::geteuid() != 0) {
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    level.unlocked.Reset(linux_sys::OpenAt2(directory, name, how));
    if (!level.unlocked || ::fstat(level.unlocked.get(), &info) != 0) return "";
    level.mode = info.st_mode & 07777;
    if (ChangeMode(level.unlocked, level.mode | 0500) != 0) return "a directory cannot be read";
    below.Reset(::openat(level.unlocked.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (!below) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? "" : "a directory cannot be read";
  return Enter(std::move(below), std::move(level));
}

std::string LayerMeter::Step(int64_t now_ms) {
  struct statvfs system {};
  if (::fstatvfs(tree_.get(), &system) != 0) return "the file system cannot be asked for its free space";
  if (static_cast<int64_t>(system.f_bavail) * static_cast<int64_t>(system.f_frsize) < kLeastFreeBytes)
    return "less than " + FormatSize(kLeastFreeBytes) + " is free on the file system";
  if (now_ms < next_ms_) return "";
  const int64_t began_ns = MonotonicNanos();
  std::string fault;
  if (levels_.empty()) {
    if (locked_meanwhile_ == locked_before_) locked_meanwhile_ = 0;
    locked_before_ = locked_meanwhile_;
    bytes_ = entries_ = walk_cost_ms_ = 0;
    fault = Enter(UniqueFd(::openat(tree_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), Level());
  }
  for (int count = 0; fault.empty() && !levels_.empty() && count < kEntriesPerStep; ++count) {
    DIR* directory = levels_.back().entries.get();
    const struct dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      levels_.pop_back();
      continue;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") fault = Look(::dirfd(directory), entry->d_name);
  }
  walk_cost_ms_ += (MonotonicNanos() - began_ns) / 1'000'000;
  if (!fault.empty()) levels_.clear();
  if (levels_.empty()) {
    last_bytes_ = bytes_;
    next_ms_ = now_ms + std::clamp(kPausePerCost * walk_cost_ms_, kShortestPauseMs, kLongestPauseMs);
  } else {
    next_ms_ = now_ms + kPausePerCost / 2;
  }
  return fault;
}

}  // namespace caisson::session
