#include "sandbox/limit_group.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "linux/files.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

using linux_sys::FindNumber;
using linux_sys::ReadSmallFile;
using linux_sys::WriteSmallFile;

namespace {

constexpr char kRoot[] = "/sys/fs/cgroup";
constexpr char kPrefix[] = "caisson-";
constexpr const char* kControllers[] = {"memory", "pids", "cpu"};
constexpr char kSocketLimit[] = "memory.kmem.tcp.limit_in_bytes";

bool IsFilesystem(const std::string& path, long magic) {
  struct statfs info {};
  return ::statfs(path.c_str(), &info) == 0 && info.f_type == magic;
}

bool MayWrite(const std::string& path) { return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

std::string GroupName(int slot) { return kPrefix + std::to_string(slot); }

std::optional<int64_t> ReadCounter(int dir_fd, const char* file, const char* key) {
  const Result<std::string> text = ReadSmallFile(dir_fd, file, 4096);
  const int64_t number = text ? FindNumber(*text, key) : -1;
  if (number < 0) return std::nullopt;
  return number;
}

int64_t ReadNumber(int dir_fd, const char* file, const char* key) { return ReadCounter(dir_fd, file, key).value_or(0); }

std::optional<int64_t> Divided(std::optional<int64_t> number, int64_t by) {
  if (number) *number /= by;
  return number;
}

void RemoveGroup(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return;
  UniqueFd group(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!group) return;
  (void)WriteSmallFile(group.get(), "cgroup.kill", "1");  // v1 has no such file: its members are those of the v2 group
  UniqueFd events(::openat(group.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  // Killed processes are gone within moments, but only a successful removal shows when; the bound prevents a kernel bug
  // from blocking us for ever. With a negative descriptor, poll only sleeps.
  for (int turn = 0; turn < 1000; ++turn) {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return;
    struct pollfd wait {
      events ? events.get() : -1, POLLPRI, 0
    };
    ::poll(&wait, 1, 2);
    char text[64];
    (void)!::pread(events.get(), text, sizeof(text), 0);  // arms the next notification
  }
}

Result<UniqueFd> MakeGroup(const std::string& parent, int slot) {
  const std::string path = parent + "/" + GroupName(slot);
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno != EEXIST) return Error::System(errno, "make cgroup " + path);
    // We hold the slot, so a group that has its number belongs to a killed run.
    RemoveGroup(path);
    if (::mkdir(path.c_str(), 0755) != 0) return Error::System(errno, "make cgroup " + path);
  }
  return linux_sys::Open(path, O_RDONLY | O_DIRECTORY);
}

bool HasWord(const std::string& words, const std::string& word) {
  for (size_t at = 0; (at = words.find(word, at)) != std::string::npos; ++at) {
    const bool starts = at == 0 || words[at - 1] == ' ';
    const size_t end = at + word.size();
    if (starts && (end == words.size() || words[end] == ' ' || words[end] == '\n')) return true;
  }
  return false;
}

// A v2 group has only the controllers that its parent enables for it. Returns "" when the parent does, else why it
// cannot.
std::string EnableController(int base, const std::string& controller) {
  const Result<std::string> enabled = ReadSmallFile(base, "cgroup.subtree_control", 4096);
  if (enabled && HasWord(*enabled, controller)) return "";
  const Status status = WriteSmallFile(base, "cgroup.subtree_control", "+" + controller);
  if (status) return "";
  return "controller " + controller + " cannot be enabled: " + std::strerror(status.error().errno_value);
}

void ProbeV2(CgroupHost& host) {
  Result<UniqueFd> base = linux_sys::Open(host.v2_base, O_RDONLY | O_DIRECTORY);
  if (!base) {
    host.why_none = base.error().message;
    return;
  }
  for (const char* controller : {"memory", "pids"}) {
    const std::string fault = EnableController(base->get(), controller);
    if (fault.empty()) continue;
    host.why_none =
        "cgroup " + host.v2_base + ": " + fault +
        "; in a container, start it with a cgroup of its own; as a user: systemd-run --user --scope caisson …";
    return;
  }
  host.driver = CgroupDriver::kV2;
  if (const std::string fault = EnableController(base->get(), "cpu"); !fault.empty()) {
    host.why_no_cpu = "cgroup " + host.v2_base + ": " + fault;
  }
}

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The path of our own group in the v2 hierarchy, below its mount point; "" for the root.
std::string OwnV2Group() {
  const Result<std::string> text = ReadSmallFile(AT_FDCWD, "/proc/self/cgroup", 4096);
  if (!text) return "";
  const size_t start = text->find("0::");
  if (start == std::string::npos || (start != 0 && (*text)[start - 1] != '\n')) return "";
  const size_t end = text->find('\n', start);
  const std::string path = text->substr(start + 3, end - start - 3);
  return path == "/" ? "" : path;
}

}  // namespace

const char* DriverName(CgroupDriver driver) {
  switch (driver) {
    case CgroupDriver::kV2:
      return "v2";
    case CgroupDriver::kHybrid:
      return "hybrid";
    case CgroupDriver::kNone:
      return "none";
  }
  return "none";
}

CgroupHost ProbeCgroups() {
  CgroupHost host;
  if (CAISSON_LEFT_OUT("cgroups")) {
    host.why_none = "left out";
    return host;
  }
  if (IsFilesystem(kRoot, CGROUP2_SUPER_MAGIC)) {
    // Root makes its groups at the top. An ordinary user needs a parent group that was delegated to that user: moving
    // our child there from our own group takes write access to their common ancestor.
    const std::string own = OwnV2Group();
    if (::geteuid() != 0 && own.empty()) {
      host.why_none =
          "this process is in the root cgroup, which cannot be delegated; run under: systemd-run --user --scope "
          "caisson …";
      return host;
    }
    host.v2_base = ::geteuid() == 0 ? kRoot : ParentOf(kRoot + own);
    if (MayWrite(host.v2_base) && MayWrite(host.v2_base + "/cgroup.procs")) {
      ProbeV2(host);
    } else {
      host.why_none =
          "cgroup " + host.v2_base + " is not delegated to this user; run under: systemd-run --user --scope caisson …";
    }
    return host;
  }
  const std::string unified = std::string(kRoot) + "/unified";
  if (!IsFilesystem(unified, CGROUP2_SUPER_MAGIC)) {
    host.why_none =
        "no cgroup v2 mount at /sys/fs/cgroup or /sys/fs/cgroup/unified; mount one: mount -t cgroup2 none "
        "/sys/fs/cgroup";
    return host;
  }
  for (const char* controller : kControllers) {
    const std::string path = std::string(kRoot) + "/" + controller;
    if (!IsFilesystem(path, CGROUP_SUPER_MAGIC)) {
      host.why_none = std::string("the v1 controller ") + controller + " is not mounted at " + path;
      return host;
    }
    if (!MayWrite(path)) {
      host.why_none =
          "cgroup v1 hierarchies belong to root and cannot be delegated safely; run as root, or on a pure cgroup v2 "
          "host";
      return host;
    }
  }
  host.driver = CgroupDriver::kHybrid;
  host.v2_base = unified;
  host.v1_mount = kRoot;
  return host;
}

Result<LimitGroup> LimitGroup::Create(const CgroupHost& host, int slot) {
  LimitGroup group;
  group.host_ = host;
  group.slot_ = slot;
  if (host.driver != CgroupDriver::kNone) {
    CAISSON_TRY(group.v2_dir_, MakeGroup(host.v2_base, slot));
  }
  return group;
}

Status LimitGroup::Apply(const Limits& limits, bool end_together) {
  if (host_.driver == CgroupDriver::kV2) return ApplyV2(limits, end_together);
  if (host_.driver == CgroupDriver::kHybrid) return ApplyHybrid(limits);
  return {};
}

Status LimitGroup::MakeAll() { return host_.driver == CgroupDriver::kHybrid ? MakeHybrid() : Status(); }

Status LimitGroup::ApplyV2(const Limits& limits, bool end_together) {
  const int dir = v2_dir_.get();
  memory_limit_ = memory_limit_now_ = limits.memory_bytes;
  if (!CAISSON_LEFT_OUT("memory_limit"))
    CAISSON_TRY_VOID(WriteSmallFile(dir, "memory.max", std::to_string(limits.memory_bytes)));
  // The file is absent without swap support; then the kernel has nothing to swap to.
  if (::faccessat(dir, "memory.swap.max", F_OK, 0) == 0) CAISSON_TRY_VOID(WriteSmallFile(dir, "memory.swap.max", "0"));
  CAISSON_TRY_VOID(WriteSmallFile(dir, "memory.oom.group", end_together ? "1" : "0"));
  if (!CAISSON_LEFT_OUT("process_limit"))
    CAISSON_TRY_VOID(WriteSmallFile(dir, "pids.max", std::to_string(limits.processes + 1)));  // and PID 1
  if (host_.why_no_cpu.empty()) {
    CAISSON_TRY_VOID(WriteSmallFile(dir, "cpu.max", std::to_string(limits.cpu_millis * 100) + " 100000"));
  }
  oom_event_ = UniqueFd(::openat(dir, "memory.events", O_RDONLY | O_CLOEXEC));
  return {};
}

Status LimitGroup::MakeHybrid() {
  CAISSON_TRY(memory_dir_, MakeGroup(host_.v1_mount + "/memory", slot_));
  CAISSON_TRY(pids_dir_, MakeGroup(host_.v1_mount + "/pids", slot_));
  CAISSON_TRY(memory_tasks_, linux_sys::OpenAt(memory_dir_.get(), "tasks", O_WRONLY));
  CAISSON_TRY(pids_tasks_, linux_sys::OpenAt(pids_dir_.get(), "tasks", O_WRONLY));
  // v1 has no setting that kills the whole group: the event wakes the supervisor, which kills it.
  oom_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CAISSON_TRY(oom_control_, linux_sys::OpenAt(memory_dir_.get(), "memory.oom_control", O_RDONLY));
  return WriteSmallFile(memory_dir_.get(), "cgroup.event_control",
                        std::to_string(oom_event_.get()) + " " + std::to_string(oom_control_.get()));
}

Status LimitGroup::ApplyHybrid(const Limits& limits) {
  if (!memory_dir_) CAISSON_TRY_VOID(MakeHybrid());
  const int64_t memory = CAISSON_LEFT_OUT("memory_limit") ? int64_t{1} << 40 : limits.memory_bytes;
  memory_limit_ = memory_limit_now_ = memory;
  CAISSON_TRY_VOID(WriteSmallFile(memory_dir_.get(), "memory.limit_in_bytes", std::to_string(memory)));
  // v1 counts the memory of TCP and UDP sockets separately, and only for sockets made after this limit is set. This
  // limit is the wall; the supervisor adds up both counters and ends the group when their sum exceeds the memory limit.
  // The limit is an eighth higher than the memory limit, so that the sum can exceed it: a socket that reaches its limit
  // only waits.
  const int64_t sockets = memory + memory / 8;
  if (::faccessat(memory_dir_.get(), kSocketLimit, F_OK, 0) == 0 && !CAISSON_LEFT_OUT("socket_memory"))
    CAISSON_TRY_VOID(WriteSmallFile(memory_dir_.get(), kSocketLimit, std::to_string(sockets)));
  if (::faccessat(memory_dir_.get(), "memory.memsw.limit_in_bytes", F_OK, 0) == 0) {
    CAISSON_TRY_VOID(WriteSmallFile(memory_dir_.get(), "memory.memsw.limit_in_bytes", std::to_string(memory)));
  }
  if (!CAISSON_LEFT_OUT("process_limit"))
    CAISSON_TRY_VOID(WriteSmallFile(pids_dir_.get(), "pids.max", std::to_string(limits.processes + 1)));  // and PID 1
  // A quota of all CPUs limits nothing; the group would only cost time.
  if (limits.cpu_millis < ::sysconf(_SC_NPROCESSORS_ONLN) * 1000) {
    CAISSON_TRY(cpu_dir_, MakeGroup(host_.v1_mount + "/cpu", slot_));
    CAISSON_TRY_VOID(WriteSmallFile(cpu_dir_.get(), "cpu.cfs_period_us", "100000"));
    CAISSON_TRY_VOID(WriteSmallFile(cpu_dir_.get(), "cpu.cfs_quota_us", std::to_string(limits.cpu_millis * 100)));
    CAISSON_TRY(cpu_tasks_, linux_sys::OpenAt(cpu_dir_.get(), "tasks", O_WRONLY));
  }
  return {};
}

std::vector<int> LimitGroup::task_fds() const {
  std::vector<int> fds;
  for (const UniqueFd* fd : {&memory_tasks_, &pids_tasks_, &cpu_tasks_}) {
    if (fd->valid()) fds.push_back(fd->get());
  }
  return fds;
}

int64_t LimitGroup::ReadSocketBytes() const {
  return host_.driver == CgroupDriver::kHybrid ? ReadNumber(memory_dir_.get(), "memory.kmem.tcp.usage_in_bytes", "")
                                               : 0;
}

int64_t LimitGroup::ReadMemoryBytes() const {
  return host_.driver == CgroupDriver::kV2 ? ReadNumber(v2_dir_.get(), "memory.current", "")
                                           : ReadNumber(memory_dir_.get(), "memory.usage_in_bytes", "");
}

bool LimitGroup::FitsBeside(int64_t uncharged) {
  const bool whole = memory_limit_now_ == memory_limit_;
  if (whole && (uncharged == 0 || ReadMemoryBytes() + uncharged <= memory_limit_)) return true;
  // Part of the memory charged to the group is cache, which the kernel reclaims only when it must.
  const int64_t rest = (memory_limit_ - uncharged) & ~int64_t{4095};
  if (rest <= 0) return false;
  if (rest == memory_limit_now_) return true;
  const bool v2 = host_.driver == CgroupDriver::kV2;
  if (!WriteSmallFile(v2 ? v2_dir_.get() : memory_dir_.get(), v2 ? "memory.max" : "memory.limit_in_bytes",
                      std::to_string(rest))) {
    return false;  // EBUSY: more than that is in use and cannot be reclaimed
  }
  memory_limit_now_ = rest;
  return true;
}

GroupCounters LimitGroup::Read() const {
  GroupCounters counters;
  if (host_.driver == CgroupDriver::kNone) return counters;
  const bool v2 = host_.driver == CgroupDriver::kV2;
  const int pids = v2 ? v2_dir_.get() : pids_dir_.get();
  counters.oom_kills = v2 ? ReadNumber(v2_dir_.get(), "memory.events", "oom_kill")
                          : ReadNumber(memory_dir_.get(), "memory.oom_control", "oom_kill");
  if (memory_peak_) {
    char text[32] = {};
    const ssize_t size = ::pread(memory_peak_.get(), text, sizeof(text) - 1, 0);
    if (size > 0) counters.peak_memory_bytes = FindNumber(text, "");
  } else {
    counters.peak_memory_bytes = v2 ? ReadCounter(v2_dir_.get(), "memory.peak", "")
                                    : ReadCounter(memory_dir_.get(), "memory.max_usage_in_bytes", "");
  }
  counters.refused_forks = ReadRefusedForks();
  counters.peak_processes = ReadCounter(pids, "pids.peak", "");
  counters.cpu_ms = ReadCpuMs();
  if (v2) counters.throttled_ms = Divided(ReadCounter(v2_dir_.get(), "cpu.stat", "throttled_usec"), 1000);
  if (cpu_dir_) counters.throttled_ms = Divided(ReadCounter(cpu_dir_.get(), "cpu.stat", "throttled_time"), 1'000'000);
  // Hybrid without a quota: the kernel never throttles the group.
  if (!v2 && !cpu_dir_) counters.throttled_ms = 0;
  return counters;
}

std::optional<int64_t> LimitGroup::ReadCpuMs() const {
  return Divided(ReadCounter(v2_dir_.get(), "cpu.stat", "usage_usec"), 1000);
}

bool LimitGroup::RestartMemoryPeak() {
  if (host_.driver == CgroupDriver::kHybrid)
    return WriteSmallFile(memory_dir_.get(), "memory.max_usage_in_bytes", "0").has_value();
  memory_peak_ = UniqueFd(::openat(v2_dir_.get(), "memory.peak", O_RDWR | O_CLOEXEC));
  if (memory_peak_ && ::write(memory_peak_.get(), "reset", 5) == 5) return true;
  memory_peak_.Reset();
  return false;
}

int64_t LimitGroup::ReadRefusedForks() const {
  return ReadNumber(host_.driver == CgroupDriver::kV2 ? v2_dir_.get() : pids_dir_.get(), "pids.events", "max");
}

LimitGroup::~LimitGroup() {
  if (slot_ < 0 || !v2_dir_) return;
  oom_event_.Reset();
  oom_control_.Reset();
  Reclaim(host_, slot_);
}

std::vector<std::string> LimitGroup::Paths(const CgroupHost& host, int slot) {
  std::vector<std::string> paths;
  if (host.driver == CgroupDriver::kNone) return paths;
  paths.push_back(host.v2_base + "/" + GroupName(slot));
  if (host.driver == CgroupDriver::kHybrid) {
    for (const char* controller : kControllers)
      paths.push_back(host.v1_mount + "/" + controller + "/" + GroupName(slot));
  }
  return paths;
}

void LimitGroup::Reclaim(const CgroupHost& host, int slot) {
  // The v2 group comes first: it can kill the processes that the other groups contain.
  for (const std::string& path : Paths(host, slot)) RemoveGroup(path);
}

std::vector<int> LimitGroup::ListSlots(const CgroupHost& host) {
  std::vector<int> slots;
  if (host.driver == CgroupDriver::kNone) return slots;
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(host.v2_base.c_str()), ::closedir);
  if (!directory) return slots;
  while (const struct dirent* entry = ::readdir(directory.get())) {
    const std::string_view name(entry->d_name);
    if (name.substr(0, sizeof(kPrefix) - 1) != kPrefix) continue;
    int slot = -1;
    const auto parsed = std::from_chars(name.data() + sizeof(kPrefix) - 1, name.data() + name.size(), slot);
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) slots.push_back(slot);
  }
  return slots;
}

}  // namespace caisson::sandbox
