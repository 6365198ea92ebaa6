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

constexpr char kPrivateCopySize[] = "256m";

Result<std::pair<UniqueFd, UniqueFd>> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

bool FitsHandover(const Spec& ground, const Spec& spec) {
  return SameGround(ground, spec) && spec.commands.size() <= Handover::kMaxCommands &&
         spec.mounts.size() < Handover::kMaxMounts;
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
  // One that was made for something else is of no use; its berth still is.
  if (berth_.first.lives() && !FitsHandover(berth_.expected->ground, spec_)) berth_.first.Kill();
  const bool ahead = berth_.first.lives();
  if (ahead) {
    isolation_.start = berth_.expected->interpreter != nullptr ? Start::kInterpreter : Start::kParked;
    // As it came, before we settle on a filter: PID 1 comes to the same.
    CAISSON_TRY_VOID(berth_.expected->carrier.send(berth_.first.control(), spec_));
  }
  CAISSON_TRY_VOID(PrepareIdentity());
  CAISSON_TRY_VOID(PrepareMounts());
  CAISSON_TRY_VOID(PrepareStreams());
  CAISSON_TRY_VOID(ahead ? HandOverToFirst() : MakeFirst());
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
  const bool watched = berth_.cgroup_host.driver == CgroupDriver::kNone;
  if (watched) {
    if (!spec_.allow_watched_limits) {
      return Error::Unsupported("wall cgroup: " + berth_.cgroup_host.why_none +
                                "; or use a profile whose allow_degraded lists cgroup");
    }
    if (spec_.seccomp_watched == nullptr) {
      return Error::Unsupported("wall cgroup: the filter " + std::string(spec_.seccomp->name) +
                                " has no variant that counts processes");
    }
    isolation_.degraded.push_back("cgroup: limits are watched, not enforced by a cgroup (" +
                                  berth_.cgroup_host.why_none + ")");
  }
  if (!berth_.cgroup_host.why_no_cpu.empty()) {
    if (!spec_.allow_watched_limits) return Error::Unsupported("wall cgroup: " + berth_.cgroup_host.why_no_cpu);
    isolation_.degraded.push_back("cpu: not limited (" + berth_.cgroup_host.why_no_cpu + ")");
  }
  extended_ = ChooseFilter(spec_, watched);
  isolation_.own_id_range = berth_.has_id_range();
  isolation_.host_uid = isolation_.own_id_range ? berth_.slot->first_host_id() + kInsideUid : ::geteuid();
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
    if (mount == nullptr || !isolation_.own_id_range) continue;
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

Status Sandbox::MakeFirst() {
  PointAtCommands(context_);
#ifdef CAISSON_TEST_HOOKS
  const auto steps = SetupSteps();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (spec_.fail_step == steps[i].name) context_.fail_step = static_cast<int>(i);
  }
#endif
  for (const UniqueFd& fd : child_fds_) context_.kept_fds.push_back(fd.get());
  if (spec_.workspace) context_.kept_fds.push_back(spec_.workspace->source.get());
  for (const Mount& mount : spec_.mounts) context_.kept_fds.push_back(mount.source.get());
  CAISSON_TRY(first_, FirstProcess::Clone(context_, berth_));
  child_fds_.clear();
  // When PID 1 has already failed, whatever we do with it fails too; what it reported is the cause.
  Status status = first_.WriteIdMaps(berth_);
  if (status) status = ApplyLimits();
  if (status) status = first_.SendCgroups(berth_.group.get());
  if (status) return {};
  const Result<Report> reported = first_.AwaitReport();
  return reported ? std::move(status) : Status(reported.error());
}

Status Sandbox::HandOverToFirst() {
  first_ = std::move(berth_.first);
  Handover handover{};
  std::vector<int> fds;
  handover.has_output = context_.stdout_fd >= 0 ? 1 : 0;
  if (handover.has_output != 0) fds = {context_.stdout_fd, context_.stderr_fd};
  handover.commands = static_cast<uint32_t>(context_.stdin_fds.size());
  handover.mounts = static_cast<uint32_t>(context_.mount_fds.size());
  for (size_t i = 0; i < context_.stdin_fds.size(); ++i) {
    if ((handover.has_input[i] = context_.stdin_fds[i] >= 0 ? 1 : 0) != 0) fds.push_back(context_.stdin_fds[i]);
  }
  for (size_t i = 0; i < context_.mount_fds.size(); ++i) {
    if ((handover.has_mount[i] = context_.mount_fds[i] >= 0 ? 1 : 0) != 0) fds.push_back(context_.mount_fds[i]);
  }
  if (!SendWithDescriptors(first_.control(), &handover, sizeof(handover), fds.data(), fds.size()))
    return Error::System(errno, "hand the request to PID 1");
  child_fds_.clear();
  return ApplyLimits();
}

Status Sandbox::ApplyLimits() {
  if (!berth_.group) return {};
  Status applied = berth_.group->Apply(spec_.limits);
  return applied ? std::move(applied) : std::move(applied).error().In("wall cgroup");
}

void Sandbox::ReclaimStale() const {
  if (!berth_.group) return;
  // In a crowd only some, others each time: looking at all of a thousand takes longer than many a run.
  constexpr size_t kMostLookedAt = 64;
  const std::vector<int> numbers = LimitGroup::ListSlots(berth_.cgroup_host);
  const auto start = static_cast<size_t>(berth_.slot->number());
  for (size_t i = 0; i < std::min(numbers.size(), kMostLookedAt); ++i) {
    const int number = numbers[(start + i) % numbers.size()];
    if (number == berth_.slot->number()) continue;
    if (Result<Slot> stale = Slot::AcquireNumber(Slot::DefaultDirectory(), number))
      LimitGroup::Reclaim(berth_.cgroup_host, number);
  }
}

Status Sandbox::AwaitReady() {
  CAISSON_TRY(const Report report, first_.AwaitReport());
  UniqueFd root, proc, listener;
  for (const auto& [number, mine] : {std::pair{report.root_fd, &root}, std::pair{report.scratch_fd, &scratch_},
                                     std::pair{report.workspace_fd, &workspace_}, std::pair{report.proc_fd, &proc},
                                     std::pair{report.listener_fd, &listener}, std::pair{report.dns_fd, &dns_},
                                     std::pair{report.terminal_fd, &terminal_}}) {
    if (number < 0) continue;
    mine->Reset(linux_sys::PidfdGetFd(first_.pidfd(), number));
    if (!mine->valid()) {
      Error error = Error::System(errno, "take a descriptor from PID 1");
      if (error.errno_value == EPERM) error.message += "; if kernel.yama.ptrace_scope is 3, set it to 2 or lower";
      return error;
    }
  }
  if (berth_.dns) dns_ = std::move(berth_.dns);
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
