// The set-up sequence: the steps of PID 1 of a new sandbox between clone and the first workload, as one table.
//
// Runs: child after clone. Nothing here allocates, throws or formats text for people: PID 1 reports a failed step to
// the supervisor as {step, errno}, and the workload never runs.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "sandbox/spec.h"
#include "sandbox/warm_interpreter.h"

namespace caisson::sandbox {

// Inside every sandbox the workload has this user and group, regardless of the user it is mapped to outside.
inline constexpr uid_t kInsideUid = 1000;
inline constexpr gid_t kInsideGid = 1000;

// Where RLIMIT_NPROC is the limit, it allows this many extra tasks: the kernel does not report a refused fork, so the
// supervisor can only notice tasks above the limit, and some of them may have ended before it looks.
inline constexpr int64_t kSpareTasks = 8;

// The sockets that receive name look-ups.
struct DnsSockets {
  int datagrams = -1;
  int listener = -1;
};

// Prepared by the supervisor before clone; the child has its own copy of everything.
struct SetupContext {
  const Spec* spec = nullptr;
  // The sandbox is created before its request exists: `spec` holds the expected values (MatchesBaseline). After the
  // steps that do not depend on the request, `take_spec` waits for the real spec; PID 1 then does the work that the
  // supervisor otherwise does before clone.
  bool ahead = false;
  bool (*take_spec)(int control_fd, Spec& spec) = nullptr;  // false, with errno, when there is none
  Spec late_spec;
  std::unique_ptr<ExtendedProgram> late_filter;
  const WarmInterpreter* interpreter = nullptr;  // runs in this program, and may serve a command instead of an exec
  // The request's stack limit equals the one this program started with. Where the interpreter serves, the kernel fixed
  // the room below the stack and the size of the threads' stacks at that start.
  bool stack_fits_interpreter = false;
  bool may_drop_groups = false;            // started by root: the id map allows setgroups
  bool kernel_lacks_limits = false;        // gVisor's refuses to set limits that it does not have
  bool limit_processes_by_rlimit = false;  // no pids cgroup: RLIMIT_NPROC counts within our own user namespace
  int landlock_abi = 0;
  bool network_made_ahead = false;  // cloned into its network namespace, where loopback is up
  cpu_set_t cpus{};                 // the CPUs the workload may see: as many as its quota covers
  bool restrict_cpus = false;
  int control_fd = -1;
  std::vector<int> kept_fds;       // sorted: the descriptors above 2 that the child needs; all others are closed first
  int stdin_null_fd = -1;          // /dev/null for commands without input; opened by the child inside the sandbox
  void* command_memory = nullptr;  // where PID 1 receives each command (sandbox/command_order.h)
  // Detached mounts made by a privileged supervisor; -1 means "reopen by path and compare". Workspace first, then
  // mounts.
  std::vector<int> mount_fds;
  int layer_fd = -1;       // likewise, for Spec::workspace_layer
  int image_tree_fd = -1;  // likewise, for the root image
  int fail_step = -1;      // test hook: index into kSetupSteps

  // Created by the steps and reported to the supervisor, which takes its own copies.
  int root_fd = -1;
  int scratch_fd = -1;
  int workspace_fd = -1;  // only where the workspace is writable
  int proc_fd = -1;
  int listener_fd = -1;
  DnsSockets dns;
  int segments_fd = -1;   // the list of System V shared memory, where no cgroup counts it
  int diagnosis_fd = -1;  // lists sockets and what they hold, likewise
  // Used between steps only.
  int scratch_fs_fd = -1;
  int image_fd = -1;
  int ruleset_fd = -1;
  // The mount in progress, for the report of a failure: 0 for the workspace, from 1 for the mounts, -1 for none of
  // them.
  int mount_at_work = -1;
  bool target_at_work = false;  // and its target is being looked up
};

// Whether a step can run before there is a request.
enum class When : uint8_t {
  kAhead,
  kAheadOfRoot,  // where mounts are descriptors: an ordinary user's are opened by path, from the old root
  kWithRequest,
};

struct SetupStep {
  const char* name;
  int (*run)(SetupContext&);  // 0 or an errno
  When when;
  const char* why;
};

std::span<const SetupStep> SetupSteps();

// Chooses the filter of `spec`: the watched variant where nothing else counts processes, extended by the calls of the
// profile. The caller keeps the extended program. Supervisor and PID 1 reach the same choice.
std::unique_ptr<ExtendedProgram> ChooseFilter(Spec& spec, bool watched);

// Whether a sandbox that was begun for `baseline` can serve `spec`: the early steps use nothing that differs.
bool MatchesBaseline(const Spec& baseline, const Spec& spec);

// Raises loopback in the caller's network namespace and opens the sockets; returns 0 or an errno. A supervisor that
// creates the namespace ahead of time uses it too.
int RaiseLoopbackHere(DnsSockets& sockets);

// Lowers the caller's user namespace's share of the resources that the kernel counts per user. `proc` is a writable
// mount of /proc. Returns 0 or an errno.
int CapUserCounters(int proc);

// Opens the list of System V shared memory for the supervisor: the kernel shows the list of the namespace of the
// process that opens it. Returns 0 or an errno.
int OpenSegmentList(int proc, SetupContext& context);

// The steps, by the file that holds them.
namespace steps {
// setup_mounts.cc
int DetachPropagation(SetupContext& context);
int MountRoot(SetupContext& context);
int BindSystemDirectories(SetupContext& context);
int CoverOtherLoaders(SetupContext& context);  // part of showing programs, the host's or an image's
int SynthesizeEtc(SetupContext& context);
int MountScratch(SetupContext& context);
int MountDevices(SetupContext& context);
int MountProc(SetupContext& context);
int PivotIntoRoot(SetupContext& context);
int SealRoot(SetupContext& context);
// setup_image.cc
int ShowImage(SetupContext& context);
int MergeImage(SetupContext& context);
// setup_request.cc
int TakeRequest(SetupContext& context);
// setup_workspace.cc
int MountWorkspace(SetupContext& context);
int MountExtras(SetupContext& context);
// setup_trust.cc
int ShowTrustBundle(SetupContext& context);
// setup_privileges.cc
int CloseForeignDescriptors(SetupContext& context);
int ForgetArguments(SetupContext& context);
int AwaitIdMaps(SetupContext& context);
int BecomeInsideUser(SetupContext& context);
int JoinCgroups(SetupContext& context);
int HideCgroupPath(SetupContext& context);
int RaiseLoopback(SetupContext& context);
int NameHost(SetupContext& context);
int SetResourceLimits(SetupContext& context);
int ForbidNewPrivileges(SetupContext& context);
int ListPaths(SetupContext& context);
int RestrictPaths(SetupContext& context);
int LimitCapabilities(SetupContext& context);
int DropCapabilities(SetupContext& context);
int DieWithSupervisor(SetupContext& context);
int InstallFilter(SetupContext& context);
}  // namespace steps

}  // namespace caisson::sandbox
