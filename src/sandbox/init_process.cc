#include "sandbox/init_process.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "sandbox/command_order.h"
#include "sandbox/control.h"
#include "sandbox/host_resources.h"
#include "sandbox/init.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

constexpr int kSetupTimeoutMs = 30'000;

constexpr uint64_t kAllNamespaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
                                    CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWTIME;

bool SettingIs(const char* path, int64_t value) {
  const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, path, 64);
  return text && linux_sys::FindNumber(*text, "") == value;
}

uint64_t NewNamespaces(const SetupContext& context) {
  uint64_t flags = kAllNamespaces;
  if (context.network_made_ahead) flags &= ~static_cast<uint64_t>(CLONE_NEWNET);
  const Spec& spec = *context.spec;
  for (const auto& [flag, shared] :
       {std::pair{CLONE_NEWIPC, spec.share_ipc}, std::pair{CLONE_NEWUTS, spec.share_uts},
        std::pair{CLONE_NEWCGROUP, spec.share_cgroup}, std::pair{CLONE_NEWTIME, spec.share_time}}) {
    if (shared) flags &= ~static_cast<uint64_t>(flag);
  }
#ifdef CAISSON_MUTATIONS
  for (const auto& [name, flag] :
       {std::pair{"user_namespace", CLONE_NEWUSER}, std::pair{"pid_namespace", CLONE_NEWPID},
        std::pair{"network_namespace", CLONE_NEWNET}, std::pair{"ipc_namespace", CLONE_NEWIPC},
        std::pair{"uts_namespace", CLONE_NEWUTS}, std::pair{"cgroup_namespace", CLONE_NEWCGROUP},
        std::pair{"time_namespace", CLONE_NEWTIME}}) {
    if (CAISSON_LEFT_OUT(name)) flags &= ~static_cast<uint64_t>(flag);
  }
#endif
  return flags;
}

// Chooses the CPUs that the workload sees: as many as its quota pays for.
void ChooseCpus(SetupContext& context, const HostResources& resources) {
  cpu_set_t available;
  if (::sched_getaffinity(0, sizeof(available), &available) != 0) return;
  const int count = CPU_COUNT(&available);
  const int wanted = static_cast<int>((context.spec->limits.cpu_millis + 999) / 1000);
  if (wanted >= count) return;
  // Neighbouring sandboxes start at different CPUs.
  int skip = resources.slot ? resources.slot->number() % count : static_cast<int>(::getpid()) % count;
  CPU_ZERO(&context.cpus);
  for (int taken = 0, cpu = 0; taken < wanted; cpu = (cpu + 1) % CPU_SETSIZE) {
    if (!CPU_ISSET(cpu, &available) || skip-- > 0) continue;
    CPU_SET(cpu, &context.cpus);
    ++taken;
  }
  context.restrict_cpus = true;
}

Error ExplainRefusal(int clone_error) {
  Error error = Error::System(clone_error, "wall namespaces: clone3");
  error.kind = ErrorKind::kUnsupported;
  error.message += clone_error == ENOSPC
                       ? "; too many namespaces: raise the user.max_*_namespaces sysctls, or end other sandboxes"
                       : UserNamespaceAdvice();
  return error;
}

// Explains why a mount's target is unusable and how to fix it; empty when the target is not the reason.
std::string FaultInTarget(int error) {
  switch (error) {
    case ELOOP:
      return "leads through a symbolic link, and none is followed: give the path without links";
    case ENOENT:
      return "does not exist in the tree that it lies in, and nothing is created there: create it in the source first, "
             "mount that tree as cow, or choose a target outside it";
    case ENOTDIR:
      return "is not a directory, or lies below something that is not: a directory is mounted on a directory";
    case EISDIR:
      return "is a directory, and a file is to be mounted there: name the file in it";
    case ENOTSUP:
      return "is neither a regular file nor a directory: nothing is mounted on pipes, sockets and devices";
    case EBUSY:
      return "meets a tree that the sandbox makes itself: choose another";
    default:
      return "";
  }
}

// The target of the mount during which the step failed.
const std::string* FailedTarget(const Report& report, const Spec* spec) {
  if (spec == nullptr || report.mount < 0) return nullptr;
  if (report.mount == 0) return spec->workspace ? &spec->workspace->target : nullptr;
  const auto index = static_cast<size_t>(report.mount) - 1;
  return index < spec->mounts.size() ? &spec->mounts[index].target : nullptr;
}

Error ExplainFailedStep(const Report& report, const Spec* spec) {
  const int error = report.error;
  const SetupStep& failed = SetupSteps()[static_cast<size_t>(report.step)];
  std::string what = std::string("wall ") + failed.name;
  if (const std::string* target = FailedTarget(report, spec)) {
    const std::string fault = report.at_target != 0 ? FaultInTarget(error) : "";
    if (!fault.empty()) return Error::Denied("mounts: the target " + EscapeForTerminal(*target) + " " + fault);
    what += ", target " + EscapeForTerminal(*target);
  }
  Error explained = Error::System(error, what);
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

}  // namespace

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

Result<InitProcess> InitProcess::Clone(SetupContext& context, const HostResources& resources) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::System(errno, "make the control socket");
  InitProcess first;
  first.control_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  CAISSON_TRY(const CommandMemory memory, CommandMemory::Map());  // remains mapped in the child
  context.command_memory = memory.address();
  context.control_fd = ends[1];
  context.kept_fds.push_back(ends[1]);
  std::sort(context.kept_fds.begin(), context.kept_fds.end());
  context.network_made_ahead = resources.network.valid();
  context.may_drop_groups = resources.has_id_range();
  context.limit_processes_by_rlimit = resources.cgroup_host.driver == CgroupDriver::kNone;
  ChooseCpus(context, resources);

#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("descriptors")) ::dup2(::open("/", O_RDONLY | O_DIRECTORY), 77);
#endif
  int pidfd = -1;
  struct clone_args args {};
  args.flags = NewNamespaces(context) | CLONE_PIDFD;
  args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  if (resources.group) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<uint64_t>(resources.group->clone_into_fd());
  }
  CAISSON_TRY_VOID(resources.EnterNetwork());
  first.pid_ = linux_sys::Clone3(&args);
  if (first.pid_ == 0) RunInit(context);
  const int clone_error = errno;
  resources.LeaveNetwork();
  if (first.pid_ < 0) return ExplainRefusal(clone_error);
  first.pidfd_ = UniqueFd(pidfd);
  return first;
}

Status InitProcess::WriteIdMaps(const HostResources& resources) const {
  const Order order{Order::kIdMapsWritten};
  if (!CAISSON_LEFT_OUT("user_namespace")) {
    CAISSON_TRY(UniqueFd process, linux_sys::Open("/proc/" + std::to_string(pid_), O_PATH | O_DIRECTORY));
    std::string uid_map, gid_map;
    if (resources.has_id_range()) {
      uid_map = gid_map =
          "0 " + std::to_string(resources.slot->first_host_id()) + " " + std::to_string(Slot::kIdsPerSlot);
    } else {
      CAISSON_TRY_VOID(linux_sys::WriteSmallFile(process.get(), "setgroups", "deny"));
      uid_map = std::to_string(kInsideUid) + " " + std::to_string(::geteuid()) + " 1";
      gid_map = std::to_string(kInsideGid) + " " + std::to_string(::getegid()) + " 1";
    }
    CAISSON_TRY_VOID(linux_sys::WriteSmallFile(process.get(), "uid_map", uid_map));
    CAISSON_TRY_VOID(linux_sys::WriteSmallFile(process.get(), "gid_map", gid_map));
  }
  if (::send(control_.get(), &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order))
    return Error::System(errno, "tell PID 1 to go on");
  return {};
}

Status InitProcess::SendCgroups(const LimitGroup* group) const {
  const Order order{Order::kJoinCgroups};
  const std::vector<int> fds = group != nullptr ? group->task_fds() : std::vector<int>();
  CAISSON_CHECK(fds.size() <= kMaxTaskFds);
  if (!SendWithDescriptors(control_.get(), &order, sizeof(order), fds.data(), fds.size()))
    return Error::System(errno, "send PID 1 its cgroups");
  return {};
}

Result<Report> InitProcess::AwaitReport(const Spec* spec) const {
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
  if (report.kind == Report::kStepFailed) return ExplainFailedStep(report, spec);
  return report;
}

void InitProcess::Kill() {
  if (pid_ < 0) return;
  // The death of PID 1 ends the whole pid namespace: the kernel kills and reaps every process in it before it releases
  // PID 1.
  linux_sys::PidfdSendSignal(pidfd_.get(), SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace caisson::sandbox
