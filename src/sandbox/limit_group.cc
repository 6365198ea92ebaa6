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

bool IsFilesystem(const std::string& path, long magic) {
  struct statfs info {};
  return ::statfs(path.c_str(), &info) == 0 && info.f_type == magic;
}

bool MayWrite(const std::string& path) { return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

std::string GroupName(int slot) { return kPrefix + std::to_string(slot); }

int64_t ReadNumber(int dir_fd, const char* file, const char* key) {
  const Result<std::string> text = ReadSmallFile(dir_fd, file, 4096);
  const int64_t number = text ? FindNumber(*text, key) : 0;
  return number < 0 ? 0 : number;
}

void RemoveGroup(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return;
  UniqueFd group(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!group) return;
  (void)WriteSmallFile(group.get(), "cgroup.kill", "1");  // v1 has none: its members are those of the v2 group
  UniqueFd events(::openat(group.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  // Killed processes are gone within moments, but only removing the group tells when; the bound keeps a kernel bug from
  // hanging us. A negative descriptor makes poll a plain pause.
  for (int turn = 0; turn < 1000; ++turn) {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return;
    struct pollfd wait {
      events ? events.get() : -1, POLLPRI, 0
    };
    ::poll(&wait, 1, 2);
    char text[64];
    (void)!::pread(events.get(), text, sizeof(text), 0);  // arms the next notice
  }
}

Result<UniqueFd> MakeGroup(const std::string& parent, int slot) {
  const std::string path = parent + "/" + GroupName(slot);
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno != EEXIST) return Error::System(errno, "make cgroup " + path);
    // The slot is ours, so a group that carries its number is a killed run's.
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

// A v2 group has only the controllers its parent hands down. "" when it does, else why it cannot.
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

// Our own group on the v2 hierarchy, below its mount point; "" for the root.
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
  if (IsFilesystem(kRoot, CGROUP2_SUPER_MAGIC)) {
    // Root makes its groups at the top. A user needs a parent group that was delegated to him: moving our child there
    // from our own group takes write access to their common ancestor.
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

Status LimitGroup::Apply(const Limits& limits) {
  if (host_.driver == CgroupDriver::kV2) return ApplyV2(limits);
  if (host_.driver == CgroupDriver::kHybrid) return ApplyHybrid(limits);
  return {};
}

Status LimitGroup::MakeAll() { return host_.driver == CgroupDriver::kHybrid ? MakeHybrid() : Status(); }

Status LimitGroup::ApplyV2(const Limits& limits) {
  const int dir = v2_dir_.get();
  if (!CAISSON_LEFT_OUT("memory_limit"))
    CAISSON_TRY_VOID(WriteSmallFile(dir, "memory.max", std::to_string(limits.memory_bytes)));
  // Absent without swap support; then there is nothing to swap to.
  if (::faccessat(dir, "memory.swap.max", F_OK, 0) == 0) CAISSON_TRY_VOID(WriteSmallFile(dir, "memory.swap.max", "0"));
  CAISSON_TRY_VOID(WriteSmallFile(dir, "memory.oom.group", "1"));
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
  // v1 has no "kill them all" flag: the event wakes the supervisor, which does it.
  oom_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CAISSON_TRY(oom_control_, linux_sys::OpenAt(memory_dir_.get(), "memory.oom_control", O_RDONLY));
  return WriteSmallFile(memory_dir_.get(), "cgroup.event_control",
                        std::to_string(oom_event_.get()) + " " + std::to_string(oom_control_.get()));
}

Status LimitGroup::ApplyHybrid(const Limits& limits) {
  if (!memory_dir_) CAISSON_TRY_VOID(MakeHybrid());
  const int64_t memory = CAISSON_LEFT_OUT("memory_limit") ? int64_t{1} << 40 : limits.memory_bytes;
  CAISSON_TRY_VOID(WriteSmallFile(memory_dir_.get(), "memory.limit_in_bytes", std::to_string(memory)));
  if (::faccessat(memory_dir_.get(), "memory.memsw.limit_in_bytes", F_OK, 0) == 0) {
    CAISSON_TRY_VOID(WriteSmallFile(memory_dir_.get(), "memory.memsw.limit_in_bytes", std::to_string(memory)));
  }
  if (!CAISSON_LEFT_OUT("process_limit"))
    CAISSON_TRY_VOID(WriteSmallFile(pids_dir_.get(), "pids.max", std::to_string(limits.processes + 1)));  // and PID 1
  // A quota of every CPU there is limits nothing; the group would only cost time.
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

GroupCounters LimitGroup::Read() const {
  GroupCounters counters;
  if (host_.driver == CgroupDriver::kNone) return counters;
  const bool v2 = host_.driver == CgroupDriver::kV2;
  const int pids = v2 ? v2_dir_.get() : pids_dir_.get();
  counters.oom_kills = v2 ? ReadNumber(v2_dir_.get(), "memory.events", "oom_kill")
                          : ReadNumber(memory_dir_.get(), "memory.oom_control", "oom_kill");
  counters.peak_memory_bytes = v2 ? ReadNumber(v2_dir_.get(), "memory.peak", "")
                                  : ReadNumber(memory_dir_.get(), "memory.max_usage_in_bytes", "");
  counters.refused_forks = ReadRefusedForks();
  counters.peak_processes = ReadNumber(pids, "pids.peak", "");
  counters.cpu_ms = ReadNumber(v2_dir_.get(), "cpu.stat", "usage_usec") / 1000;
  if (v2) counters.throttled_ms = ReadNumber(v2_dir_.get(), "cpu.stat", "throttled_usec") / 1000;
  if (cpu_dir_) counters.throttled_ms = ReadNumber(cpu_dir_.get(), "cpu.stat", "throttled_time") / 1'000'000;
  return counters;
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
  // The v2 group comes first: it is the one that can kill what the others hold.
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
