// The set-up sequence: what PID 1 of a new sandbox does between clone and the first workload, as one table.
//
// Runs: child after clone. Nothing here allocates, throws or formats text for people: a step that fails is reported to
// the supervisor as {step, errno} and the workload never runs.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "sandbox/interpreter.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

// Inside every sandbox the workload is this user and group, whoever it is mapped to outside.
inline constexpr uid_t kInsideUid = 1000;
inline constexpr gid_t kInsideGid = 1000;

// Where RLIMIT_NPROC is the limit it lets this many more tasks live: the kernel tells nobody that it refused a fork, so
// one task too many is what there is to be seen, and some of them may have ended before the look.
inline constexpr int64_t kSpareTasks = 8;

// Prepared by the supervisor before clone; the child has its own copy of all of it.
struct SetupContext {
  const Spec* spec = nullptr;
  // Made before there is a request: `spec` is what it is expected to be like (SameGround). After the steps that no
  // request decides, `take_spec` waits for the real one; what was supervisor's work before clone is then done here.
  bool ahead = false;
  bool (*take_spec)(int control_fd, Spec& spec) = nullptr;  // false, with errno, when there is none
  Spec late_spec;
  std::unique_ptr<ExtendedProgram> late_filter;
  const Interpreter* interpreter = nullptr;  // runs in this program, and may serve instead of executing another
  bool may_drop_groups = false;              // started by root: the id map allows setgroups
  bool limit_processes_by_rlimit = false;    // no pids cgroup: RLIMIT_NPROC counts within our own user namespace
  int landlock_abi = 0;
  bool network_made_ahead = false;  // we were born into our network namespace, and loopback is up
  cpu_set_t cpus{};                 // the CPUs the workload may see: as many as its quota pays for
  bool restrict_cpus = false;
  int control_fd = -1;
  std::vector<int> kept_fds;   // sorted: every descriptor above 2 the child needs; the rest is closed first
  int stdin_null_fd = -1;      // /dev/null for commands without input; opened by the child inside the sandbox
  std::vector<int> stdin_fds;  // one per command, -1 for none
  int stdout_fd = -1;
  int stderr_fd = -1;
  // Detached mounts made by a privileged supervisor; -1 means "reopen by path and compare". Workspace first, then
  // mounts.
  std::vector<int> mount_fds;
  std::vector<std::vector<const char*>> argv_pointers;  // one per command, null-terminated
  std::vector<std::vector<const char*>> env_pointers;
  std::vector<std::vector<std::string>> exec_candidates;  // absolute paths to try, in order
  int fail_step = -1;                                     // test hook: index into kSetupSteps

  // Made by the steps, reported to the supervisor, which takes its own copies.
  int root_fd = -1;
  int scratch_fd = -1;
  int workspace_fd = -1;  // only where the workspace is writable
  int proc_fd = -1;
  int listener_fd = -1;
  int dns_fd = -1;
  int terminal_fd = -1;  // master side
  int terminal_slave_fd = -1;
  // Between steps only.
  int scratch_fs_fd = -1;
  int ruleset_fd = -1;
};

// Whether a step can be done before there is a request.
enum class When : uint8_t {
  kAhead,
  kAheadOfRoot,  // where mounts come as descriptors: an ordinary user's are opened by their path, out of the old root
  kWithRequest,
};

struct SetupStep {
  const char* name;
  int (*run)(SetupContext&);  // 0 or an errno
  When when;
  const char* why;
};

std::span<const SetupStep> SetupSteps();

// Fills in what is derived from the commands of the spec. Allocates: before clone, or in a PID 1 that was made ahead.
void PointAtCommands(SetupContext& context);

// Settles which filter `spec` gets: the one that watches where nothing else counts processes, and what the profile adds
// to it, which the caller keeps. Supervisor and PID 1 come to the same.
std::unique_ptr<ExtendedProgram> ChooseFilter(Spec& spec, bool watched);

// Whether a sandbox that was begun for `ground` can become one for `spec`: nothing of what the early steps use differs.
bool SameGround(const Spec& ground, const Spec& spec);

// Raises loopback in the network namespace of the caller and opens the socket at which name look-ups arrive; returns
// it, or -1 with errno. Also for a supervisor that makes the namespace ahead.
int RaiseLoopbackHere();

// The steps, by the file that holds them.
namespace steps {
// setup_mounts.cc
int DetachPropagation(SetupContext& context);
int MountRoot(SetupContext& context);
int BindSystemDirectories(SetupContext& context);
int SynthesizeEtc(SetupContext& context);
int MountScratch(SetupContext& context);
int MountDevices(SetupContext& context);
int MountProc(SetupContext& context);
int PivotIntoRoot(SetupContext& context);
int SealRoot(SetupContext& context);
// setup_request.cc
int TakeRequest(SetupContext& context);
// setup_workspace.cc
int MountWorkspace(SetupContext& context);
int MountExtras(SetupContext& context);
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
