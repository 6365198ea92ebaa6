#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "linux/files.h"
#include "linux/syscalls.h"
#include "sandbox/control.h"
#include "sandbox/idmap.h"
#include "sandbox/init.h"
#include "sandbox/mount_fd.h"
#include "sandbox/mutation.h"
#include "sandbox/private_copy.h"

namespace caisson::sandbox {

namespace {

constexpr int kSetupTimeoutMs = 30'000;
constexpr char kPrivateCopySize[] = "256m";
constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

constexpr uint64_t kAllNamespaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
                                    CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWTIME;

bool StartedByRoot() { return ::geteuid() == 0; }

bool SettingIs(const char* path, int64_t value) {
  const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, path, 64);
  return text && linux_sys::FindNumber(*text, "") == value;
}

// The usual reasons a machine refuses user namespaces, and the setting that changes it.
std::string UserNamespaceAdvice() {
  if (SettingIs("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1)) {
    return "; AppArmor restricts user namespaces here: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or "
           "run as root";
  }
  if (SettingIs("/proc/sys/kernel/unprivileged_userns_clone", 0)) {
    return "; user namespaces are off for ordinary users: sysctl -w kernel.unprivileged_userns_clone=1, or run as root";
  }
  if (SettingIs("/proc/sys/user/max_user_namespaces", 0)) {
    return "; user namespaces are off: sysctl -w user.max_user_namespaces=10000";
  }
  return "";
}

std::vector<std::string> ExecCandidates(const Command& command) {
  const std::string& program = command.argv[0];
  if (program.find('/') != std::string::npos) return {program};
  std::string path = kDefaultPath;
  for (const std::string& variable : command.env) {
    if (variable.compare(0, 5, "PATH=") == 0) path = variable.substr(5);
  }
  std::vector<std::string> candidates;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find(':', start), path.size());
    if (end > start) candidates.push_back(path.substr(start, end - start) + "/" + program);
    start = end + 1;
  }
  return candidates;
}

std::vector<const char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(string.c_str());
  pointers.push_back(nullptr);
  return pointers;
}

Result<std::pair<UniqueFd, UniqueFd>> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

void SetNonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

// A detached tmpfs with a copy of the directory or file at `source` that belongs to `owner`.
Result<UniqueFd> MakePrivateCopy(int source, uid_t owner) {
  UniqueFd fs(
      NewFilesystem("tmpfs", {{"mode", "0755"}, {"size", kPrivateCopySize}}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!fs) return Error::System(errno, "make a file system for a private copy");
  struct stat info {};
  if (::fstat(source, &info) != 0) return Error::System(errno, "stat a mount source");
  if (!S_ISDIR(info.st_mode)) {
    return Error::Unsupported("a single file on a file system that cannot be id-mapped; show its directory instead");
  }
  if (CopyTree(source, fs.get(), owner) != 0) {
    return Error::System(errno, std::string("make a private copy of at most ") + kPrivateCopySize);
  }
  return fs;
}

}  // namespace

Result<std::unique_ptr<Sandbox>> Sandbox::Create(Spec spec) {
  CAISSON_TRY(Berth berth, Berth::Prepare());
  return Create(std::move(spec), std::move(berth));
}

Result<std::unique_ptr<Sandbox>> Sandbox::Create(Spec spec, Berth berth) {
  std::unique_ptr<Sandbox> sandbox(new Sandbox(std::move(spec), std::move(berth)));
  CAISSON_TRY_VOID(sandbox->Build());
  return sandbox;
}

Sandbox::~Sandbox() { Kill(); }

Status Sandbox::Build() {
  CAISSON_CHECK(spec_.seccomp != nullptr && !spec_.commands.empty());
  context_.spec = &spec_;
  CAISSON_TRY_VOID(PrepareIdentity());
  CAISSON_TRY_VOID(PrepareMounts());
  CAISSON_TRY_VOID(PrepareStreams());
  PrepareCommands();
  PrepareCpus();
  CAISSON_TRY_VOID(Clone());
  child_fds_.clear();
  // When PID 1 has already failed, whatever we do with it fails too; what it reported is the cause.
  for (const auto step : {&Sandbox::WriteIdMaps, &Sandbox::SendCgroups}) {
    if (Status status = (this->*step)(); !status) {
      Status reported = AwaitReady();
      return reported ? std::move(status) : std::move(reported);
    }
  }
  CAISSON_TRY_VOID(AwaitReady());
  isolation_.namespaces = {"user", "pid", "mount", "network"};
  for (const auto& [name, shared] : {std::pair{"ipc", spec_.share_ipc}, std::pair{"uts", spec_.share_uts},
                                     std::pair{"cgroup", spec_.share_cgroup}, std::pair{"time", spec_.share_time}}) {
    if (!shared) isolation_.namespaces.emplace_back(name);
  }
  isolation_.seccomp_profile = spec_.seccomp->name;
  isolation_.seccomp_sha256 = spec_.seccomp->sha256;
  return {};
}

Status Sandbox::PrepareIdentity() {
  isolation_.landlock_abi = context_.landlock_abi = spec_.landlock ? linux_sys::LandlockAbi() : 0;
  if (context_.landlock_abi == 0 && spec_.landlock) {
    if (!spec_.allow_no_landlock) {
      return Error::Unsupported(
          "wall landlock: this kernel has no Landlock; boot with lsm=landlock,… or use a profile whose allow_degraded "
          "lists landlock");
    }
    isolation_.degraded.push_back("landlock: not in this kernel");
  }
  isolation_.cgroup_driver = berth_.cgroup_host.driver;
  if (berth_.cgroup_host.driver == CgroupDriver::kNone) {
    if (!spec_.allow_watched_limits) {
      return Error::Unsupported("wall cgroup: " + berth_.cgroup_host.why_none +
                                "; or use a profile whose allow_degraded lists cgroup");
    }
    context_.limit_processes_by_rlimit = true;
    if (spec_.seccomp_watched == nullptr) {
      return Error::Unsupported("wall cgroup: the filter " + std::string(spec_.seccomp->name) +
                                " has no variant that counts processes");
    }
    spec_.seccomp = spec_.seccomp_watched;
    isolation_.degraded.push_back("cgroup: limits are watched, not enforced by a cgroup (" +
                                  berth_.cgroup_host.why_none + ")");
  }
  if (!berth_.cgroup_host.why_no_cpu.empty()) {
    if (!spec_.allow_watched_limits) return Error::Unsupported("wall cgroup: " + berth_.cgroup_host.why_no_cpu);
    isolation_.degraded.push_back("cpu: not limited (" + berth_.cgroup_host.why_no_cpu + ")");
  }
  // The filter that goes in before the last capability goes out must let that happen.
  if (CAISSON_LEFT_OUT("no_new_privs")) spec_.allowed_calls.push_back(SYS_capset);
  if (!spec_.allowed_calls.empty() || !spec_.denied_calls.empty()) {
    extended_ = std::make_unique<ExtendedProgram>(*spec_.seccomp, spec_.allowed_calls, spec_.denied_calls);
    spec_.seccomp = &extended_->program();
  }
  context_.may_drop_groups = isolation_.own_id_range = StartedByRoot();
  isolation_.host_uid = StartedByRoot() ? berth_.slot->first_host_id() + kInsideUid : ::geteuid();
  context_.network_made_ahead = berth_.network.valid();
  isolation_.parked = berth_.ahead;
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("user_namespace")) isolation_.host_uid = kInsideUid;
#endif
  return {};
}

Status Sandbox::PrepareMounts() {
  std::vector<const Mount*> mounts = {spec_.workspace ? &*spec_.workspace : nullptr};
  for (const Mount& mount : spec_.mounts) mounts.push_back(&mount);
  for (const Mount* mount : mounts) {
    context_.mount_fds.push_back(-1);
    if (mount == nullptr || !StartedByRoot()) continue;
    const uid_t first = berth_.slot->first_host_id();
    struct stat info {};
    if (::fstat(mount->source.get(), &info) != 0) return Error::System(errno, "stat a mount source");
    Result<UniqueFd> tree =
        CloneWithOwner(mount->source.get(), spec_.mount_owner.value_or(Owner{info.st_uid, info.st_gid}),
                       {first + kInsideUid, first + kInsideGid});
    // A file system that cannot be id-mapped (tmpfs before Linux 6.3): a copy serves, unless writes must reach the
    // host. SECURITY: nor when another's rights are to hold, because we would copy what he may not read.
    if (!tree && tree.error().kind == ErrorKind::kUnsupported && mount->access != Access::kReadWrite &&
        !spec_.mount_owner) {
      tree = MakePrivateCopy(mount->source.get(), first + kInsideUid);
    }
    if (!tree) return std::move(tree).error().In("mount " + mount->source_path);
    context_.mount_fds.back() = tree->get();
    child_fds_.push_back(*std::move(tree));
  }
  return {};
}

Status Sandbox::PrepareStreams() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::System(errno, "make the control socket");
  control_ = UniqueFd(ends[0]);
  child_fds_.emplace_back(ends[1]);
  context_.control_fd = ends[1];
  const bool terminal = spec_.stdio == Stdio::kTerminal;
  for (const Command& command : spec_.commands) {
    const bool piped = !terminal && (command.stdin_bytes || spec_.stdio == Stdio::kPassThrough);
    context_.stdin_fds.push_back(-1);
    stdin_pipes_.emplace_back();
    if (!piped) continue;
    CAISSON_TRY(auto pipe, MakePipe());
    if (isolation_.own_id_range && ::fchown(pipe.first.get(), isolation_.host_uid, isolation_.host_uid) != 0) {
      return Error::System(errno, "give the workload its input pipe");
    }
    context_.stdin_fds.back() = pipe.first.get();
    child_fds_.push_back(std::move(pipe.first));
    stdin_pipes_.back() = std::move(pipe.second);
    SetNonblocking(stdin_pipes_.back().get());
  }
  if (terminal) return {};
  for (const auto& [number, pipe_end] :
       {std::pair{&context_.stdout_fd, &stdout_pipe_}, std::pair{&context_.stderr_fd, &stderr_pipe_}}) {
    CAISSON_TRY(auto pipe, MakePipe());
    SetNonblocking(pipe.first.get());
    // Opening /dev/stdout opens the pipe anew, which takes being its owner.
    if (isolation_.own_id_range && ::fchown(pipe.second.get(), isolation_.host_uid, isolation_.host_uid) != 0) {
      return Error::System(errno, "give the workload its output pipe");
    }
    *pipe_end = std::move(pipe.first);
    *number = pipe.second.get();
    child_fds_.push_back(std::move(pipe.second));
  }
  return {};
}

void Sandbox::PrepareCommands() {
  for (const Command& command : spec_.commands) {
    context_.argv_pointers.push_back(Pointers(command.argv));
    context_.env_pointers.push_back(Pointers(command.env));
    context_.exec_candidates.push_back(ExecCandidates(command));
  }
#ifdef CAISSON_TEST_HOOKS
  const auto steps = SetupSteps();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (spec_.fail_step == steps[i].name) context_.fail_step = static_cast<int>(i);
  }
#endif
}

void Sandbox::PrepareCpus() {
  cpu_set_t available;
  if (::sched_getaffinity(0, sizeof(available), &available) != 0) return;
  const int count = CPU_COUNT(&available);
  const int wanted = static_cast<int>((spec_.limits.cpu_millis + 999) / 1000);
  if (wanted >= count) return;
  // Neighbouring sandboxes start at different CPUs.
  int skip = berth_.slot ? berth_.slot->number() % count : static_cast<int>(::getpid()) % count;
  CPU_ZERO(&context_.cpus);
  for (int taken = 0, cpu = 0; taken < wanted; cpu = (cpu + 1) % CPU_SETSIZE) {
    if (!CPU_ISSET(cpu, &available) || skip-- > 0) continue;
    CPU_SET(cpu, &context_.cpus);
    ++taken;
  }
  context_.restrict_cpus = true;
}

Status Sandbox::Clone() {
  for (const UniqueFd& fd : child_fds_) context_.kept_fds.push_back(fd.get());
  if (spec_.workspace) context_.kept_fds.push_back(spec_.workspace->source.get());
  for (const Mount& mount : spec_.mounts) context_.kept_fds.push_back(mount.source.get());
  std::sort(context_.kept_fds.begin(), context_.kept_fds.end());

#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("descriptors")) ::dup2(::open("/", O_RDONLY | O_DIRECTORY), 77);
#endif
  int pidfd = -1;
  struct clone_args args {};
  args.flags = kAllNamespaces | CLONE_PIDFD;
  if (context_.network_made_ahead) args.flags &= ~static_cast<uint64_t>(CLONE_NEWNET);
  for (const auto& [flag, shared] :
       {std::pair{CLONE_NEWIPC, spec_.share_ipc}, std::pair{CLONE_NEWUTS, spec_.share_uts},
        std::pair{CLONE_NEWCGROUP, spec_.share_cgroup}, std::pair{CLONE_NEWTIME, spec_.share_time}}) {
    if (shared) args.flags &= ~static_cast<uint64_t>(flag);
  }
#ifdef CAISSON_MUTATIONS
  for (const auto& [name, flag] :
       {std::pair{"user_namespace", CLONE_NEWUSER}, std::pair{"pid_namespace", CLONE_NEWPID},
        std::pair{"network_namespace", CLONE_NEWNET}, std::pair{"ipc_namespace", CLONE_NEWIPC},
        std::pair{"uts_namespace", CLONE_NEWUTS}, std::pair{"cgroup_namespace", CLONE_NEWCGROUP},
        std::pair{"time_namespace", CLONE_NEWTIME}}) {
    if (CAISSON_LEFT_OUT(name)) args.flags &= ~static_cast<uint64_t>(flag);
  }
#endif
  args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  if (berth_.group) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<uint64_t>(berth_.group->clone_into_fd());
  }
  CAISSON_TRY_VOID(berth_.EnterNetwork());
  pid_ = linux_sys::Clone3(&args);
  if (pid_ == 0) RunInit(context_);
  const int clone_error = errno;
  berth_.LeaveNetwork();
  if (pid_ < 0) {
    Error error = Error::System(clone_error, "wall namespaces: clone3");
    error.kind = ErrorKind::kUnsupported;
    error.message += error.errno_value == ENOSPC
                         ? "; too many namespaces: raise the user.max_*_namespaces sysctls, or end other sandboxes"
                         : UserNamespaceAdvice();
    return error;
  }
  pidfd_ = UniqueFd(pidfd);
  return {};
}

Status Sandbox::WriteIdMaps() {
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("user_namespace")) {
    const Order order{Order::kIdMapsWritten, 0, 0};
    if (::send(control_.get(), &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order))
      return Error::System(errno, "go on");
    return {};
  }
#endif
  CAISSON_TRY(UniqueFd process, linux_sys::Open("/proc/" + std::to_string(pid_), O_PATH | O_DIRECTORY));
  std::string uid_map, gid_map;
  if (isolation_.own_id_range) {
    uid_map = gid_map = "0 " + std::to_string(berth_.slot->first_host_id()) + " " + std::to_string(Slot::kIdsPerSlot);
  } else {
    CAISSON_TRY_VOID(linux_sys::WriteSmallFile(process.get(), "setgroups", "deny"));
    uid_map = std::to_string(kInsideUid) + " " + std::to_string(::geteuid()) + " 1";
    gid_map = std::to_string(kInsideGid) + " " + std::to_string(::getegid()) + " 1";
  }
  CAISSON_TRY_VOID(linux_sys::WriteSmallFile(process.get(), "uid_map", uid_map));
  CAISSON_TRY_VOID(linux_sys::WriteSmallFile(process.get(), "gid_map", gid_map));
  const Order order{Order::kIdMapsWritten, 0, 0};
  if (::send(control_.get(), &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order))
    return Error::System(errno, "tell PID 1 to go on");
  return {};
}

Status Sandbox::SendCgroups() {
  Order order{Order::kJoinCgroups, 0, 0};
  struct iovec data {
    &order, sizeof(order)
  };
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int) * kMaxTaskFds)] = {};
  if (berth_.group) {
    Status applied = berth_.group->Apply(spec_.limits);
    if (!applied) return std::move(applied).error().In("wall cgroup");
    const std::vector<int> fds = berth_.group->task_fds();
    CAISSON_CHECK(fds.size() <= kMaxTaskFds);
    if (!fds.empty()) {
      message.msg_control = rights;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      struct cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
    }
  }
  if (::sendmsg(control_.get(), &message, MSG_NOSIGNAL) < 0) return Error::System(errno, "send PID 1 its cgroups");
  return {};
}

void Sandbox::ReclaimStale() const {
  if (!berth_.group) return;
  for (const int number : LimitGroup::ListSlots(berth_.cgroup_host)) {
    if (number == berth_.slot->number()) continue;
    if (Result<Slot> stale = Slot::AcquireNumber(Slot::DefaultDirectory(), number))
      LimitGroup::Reclaim(berth_.cgroup_host, number);
  }
}

Error Sandbox::ExplainFailedStep(int step, int error) const {
  const SetupStep& failed = SetupSteps()[static_cast<size_t>(step)];
  Error explained = Error::System(error, std::string("wall ") + failed.name);
  explained.kind = ErrorKind::kUnsupported;
  if (error == EPERM || error == EACCES) explained.message += UserNamespaceAdvice();
  if (error == EPERM && std::strcmp(failed.name, "proc") == 0) {
    explained.message +=
        "; /proc is partly covered here, as in an unprivileged container: run outside it, or with --security-opt "
        "systempaths=unconfined";
  }
  if (error == ENODEV) explained.message += "; the overlay file system is not loaded: modprobe overlay";
  if (error == ESTALE) explained.message += "; a mount source was replaced between being judged and being mounted";
  if (error == ENOSYS) explained.message += "; Linux 5.14 or newer is needed";
  return explained;
}

Status Sandbox::AwaitReady() {
  struct pollfd wait {
    control_.get(), POLLIN, 0
  };
  int ready;
  while ((ready = ::poll(&wait, 1, kSetupTimeoutMs)) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return Error::System(ETIMEDOUT, "set up the sandbox");
  Report report{};
  if (!TakeReport(control_.get(), report, 0))
    return Error::System(errno, "PID 1 of the sandbox ended while setting up");
  if (report.kind == Report::kStepFailed) return ExplainFailedStep(report.step, report.error);

  UniqueFd root, proc, listener;
  for (const auto& [number, mine] : {std::pair{report.root_fd, &root}, std::pair{report.scratch_fd, &scratch_},
                                     std::pair{report.workspace_fd, &workspace_}, std::pair{report.proc_fd, &proc},
                                     std::pair{report.listener_fd, &listener}, std::pair{report.dns_fd, &dns_},
                                     std::pair{report.terminal_fd, &terminal_}}) {
    if (number < 0) continue;
    mine->Reset(linux_sys::PidfdGetFd(pidfd_.get(), number));
    if (!mine->valid()) {
      Error error = Error::System(errno, "take a descriptor from PID 1");
      if (error.errno_value == EPERM) error.message += "; if kernel.yama.ptrace_scope is 3, set it to 2 or lower";
      return error;
    }
  }
  if (context_.network_made_ahead) dns_ = std::move(berth_.dns);
  if (terminal_) SetNonblocking(terminal_.get());

  Observer::Options options;
  options.writable = {"/scratch"};
  if (spec_.writable_tmp) options.writable.emplace_back("/tmp");
  if (spec_.writable_shm) options.writable.emplace_back("/dev/shm");
  if (workspace_) options.writable.push_back("/workspace");
  for (const Mount& mount : spec_.mounts) {
    if (mount.access != Access::kReadOnly) options.writable.push_back(mount.target);
  }
  options.ignored_components = spec_.ignored_write_components;
  options.scratch_bytes = spec_.limits.scratch_bytes;
  observer_ = std::make_unique<Observer>(std::move(listener), std::move(root), *spec_.seccomp, std::move(options));
  if (berth_.cgroup_host.driver == CgroupDriver::kNone) meter_ = std::make_unique<TreeMeter>(std::move(proc));
  return {};
}

void Sandbox::Kill() {
  if (pid_ < 0) return;
  // PID 1's death is the whole pid namespace's: the kernel kills and reaps everything in it before it lets PID 1 go.
  linux_sys::PidfdSendSignal(pidfd_.get(), SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Collected Sandbox::Collect(const std::vector<std::string>& globs) {
  if (!CAISSON_LEFT_OUT("kill_before_collecting")) Kill();
  const auto wanted = [&](const std::string& path) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return MatchesGlob(path, glob); });
  };
  Collected collected;
  CollectFiles(scratch_.get(), "/scratch", wanted, {}, collected);
  if (workspace_) CollectFiles(workspace_.get(), "/workspace", wanted, {}, collected);
  return collected;
}

}  // namespace caisson::sandbox
