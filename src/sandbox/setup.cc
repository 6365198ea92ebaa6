#include "sandbox/setup.h"

#include <sys/syscall.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

// The order matters; each line gives its reason. Mounts need capabilities, so they come before the drop; the filter
// forbids mount and prctl calls, so it comes last; no_new_privs lets an unprivileged process install Landlock and
// seccomp. A sandbox that is created ahead of its request runs the kAhead steps first, in this order, and the others
// when the request has come; no kAhead step needs one of the others.
constexpr SetupStep kSteps[] = {
    {"descriptors", steps::CloseForeignDescriptors, When::kAhead,
     "descriptors of the supervisor must not stay open in the sandbox"},
    {"arguments", steps::ForgetArguments, When::kAhead,
     "every process inside can read the arguments of PID 1, which name files of the host"},
    {"id_maps", steps::AwaitIdMaps, When::kAhead,
     "files created before the supervisor has written the maps would have no owner"},
    {"user", steps::BecomeInsideUser, When::kAhead,
     "creates everything below as the unprivileged inside user, without groups"},
    {"propagation", steps::DetachPropagation, When::kAhead, "mounts must not propagate to the host, or from it"},
    {"root", steps::MountRoot, When::kAhead, "a fresh tmpfs, which holds only what the steps below add"},
    {"system_directories", steps::BindSystemDirectories, When::kAhead,
     "programs and libraries, read-only, no set-user-id"},
    {"image", steps::ShowImage, When::kAhead, "or those of a root image, read-only, no set-user-id, no devices"},
    {"etc", steps::SynthesizeEtc, When::kAhead,
     "names and loader configuration without the host's accounts or secrets"},
    {"image_etc", steps::MergeImage, When::kAhead, "the image's configuration and state below our own"},
    {"scratch", steps::MountScratch, When::kAhead, "the only writable file system, with byte and inode caps"},
    {"devices", steps::MountDevices, When::kAhead, "five harmless devices; nothing can make another"},
    {"proc", steps::MountProc, When::kAhead,
     "its own processes only, read-only, with the host's kernel details masked"},
    {"request", steps::TakeRequest, When::kWithRequest, "a sandbox created ahead waits here for its request"},
    {"workspace", steps::MountWorkspace, When::kWithRequest, "the source under test"},
    {"mounts", steps::MountExtras, When::kWithRequest, "the paths that policy granted, by the descriptors it judged"},
    {"trust", steps::ShowTrustBundle, When::kWithRequest,
     "certificates by which programs inside know the servers that they may reach"},
    {"pivot", steps::PivotIntoRoot, When::kAheadOfRoot, "the host's tree can no longer be reached"},
    {"read_only_root", steps::SealRoot, When::kWithRequest, "the tree is complete and must not change"},
    {"loopback", steps::RaiseLoopback, When::kAhead,
     "the only interface; its name-lookup socket lets the supervisor see look-ups and refuse them at once"},
    {"hostname", steps::NameHost, When::kAhead, "hides the name of the host"},
    {"cgroup", steps::JoinCgroups, When::kAhead, "limits apply before the first byte of the workload is read"},
    {"cgroup_namespace", steps::HideCgroupPath, When::kAhead,
     "a second cgroup namespace, rooted at the sandbox's group, hides the host's path"},
    {"resource_limits", steps::SetResourceLimits, When::kWithRequest,
     "limits of each process, below those of the cgroup"},
    {"no_new_privs", steps::ForbidNewPrivileges, When::kAhead,
     "set-user-id programs and file capabilities have no effect any more"},
    {"landlock_rules", steps::ListPaths, When::kAheadOfRoot,
     "the readable and writable trees that all sandboxes share"},
    {"landlock", steps::RestrictPaths, When::kWithRequest, "a second wall behind the read-only mounts"},
    {"capability_bounds", steps::LimitCapabilities, When::kAhead, "no program that is executed can gain a capability"},
    {"capabilities", steps::DropCapabilities, When::kWithRequest,
     "empties all sets; the steps above were the last to need a capability"},
    {"parent_death", steps::DieWithSupervisor, When::kAhead,
     "PID 1 dies with the supervisor, and every process inside dies with PID 1"},
    {"seccomp", steps::InstallFilter, When::kWithRequest,
     "comes last, because it forbids calls that the steps above need"},
};

}  // namespace

std::span<const SetupStep> SetupSteps() { return kSteps; }

std::unique_ptr<ExtendedProgram> ChooseFilter(Spec& spec, bool watched) {
  if (watched) spec.seccomp = spec.seccomp_watched;
  // This filter is installed before the last capability is dropped, so it must allow the drop.
  if (CAISSON_LEFT_OUT("no_new_privs")) spec.allowed_calls.push_back(SYS_capset);
  if (spec.allowed_calls.empty() && spec.denied_calls.empty()) return nullptr;
  auto extended = std::make_unique<ExtendedProgram>(*spec.seccomp, spec.allowed_calls, spec.denied_calls);
  spec.seccomp = &extended->program();
  return extended;
}

bool MatchesBaseline(const Spec& baseline, const Spec& spec) {
  if (spec.root) return false;  // the baseline shows the host's programs
  const auto parts = [](const Spec& of) {
    return std::tie(of.system_paths, of.etc_paths, of.devices, of.writable_tmp, of.writable_shm, of.masked_files,
                    of.masked_directories, of.proc_pids_only, of.share_ipc, of.share_uts, of.share_cgroup,
                    of.share_time, of.hostname, of.limits.cpu_millis);
  };
  return parts(baseline) == parts(spec);
}

}  // namespace caisson::sandbox
