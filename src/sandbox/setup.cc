#include "sandbox/setup.h"

namespace caisson::sandbox {

namespace {

// Order matters and is argued per line. Mounts need capabilities, so they come before the drop; the filter forbids
// mount and prctl calls, so it comes last; no_new_privs is what lets an unprivileged process install Landlock and
// seccomp.
constexpr SetupStep kSteps[] = {
    {"descriptors", steps::CloseForeignDescriptors, "what the supervisor had open is not ours, pipe ends least of all"},
    {"arguments", steps::ForgetArguments, "everybody inside can read PID 1's, and they name files of the host"},
    {"id_maps", steps::AwaitIdMaps, "until the supervisor has written them, every file we made would belong to nobody"},
    {"user", steps::BecomeInsideUser, "all files below are made as the unprivileged inside user; no groups are kept"},
    {"propagation", steps::DetachPropagation, "no mount of ours may reach the host, nor one of the host's reach us"},
    {"root", steps::MountRoot, "a fresh tmpfs: the tree holds what we put there and nothing else"},
    {"system_directories", steps::BindSystemDirectories, "programs and libraries, read-only, no set-user-id"},
    {"etc", steps::SynthesizeEtc, "names and loader configuration without the host's accounts or secrets"},
    {"scratch", steps::MountScratch, "the only writable file system, with byte and inode caps"},
    {"devices", steps::MountDevices, "five harmless devices; nothing can make another"},
    {"proc", steps::MountProc, "its own processes only, read-only, with the host's kernel details masked"},
    {"workspace", steps::MountWorkspace, "the source under test"},
    {"mounts", steps::MountExtras, "what policy granted besides, by the descriptors it judged"},
    {"pivot", steps::PivotIntoRoot, "after this the host's tree has no name here"},
    {"loopback", steps::RaiseLoopback,
     "the only interface; the name-lookup socket exists so that look-ups are seen and refused at once"},
    {"hostname", steps::NameHost, "the host's name is not the workload's business"},
    {"cgroup", steps::JoinCgroups,
     "the supervisor made it meanwhile; limits hold before the first foreign byte is read"},
    {"cgroup_namespace", steps::HideCgroupPath,
     "a second cgroup namespace, rooted where we are now, hides the host's path"},
    {"resource_limits", steps::SetResourceLimits, "per-process caps under the cgroup's"},
    {"no_new_privs", steps::ForbidNewPrivileges, "set-user-id and file capabilities give nothing from here on"},
    {"landlock", steps::RestrictPaths, "second wall behind the read-only mounts"},
    {"capabilities", steps::DropCapabilities, "all five sets empty and locked"},
    {"parent_death", steps::DieWithSupervisor, "if the supervisor dies we die, and with PID 1 everything inside"},
    {"seccomp", steps::InstallFilter, "last: it forbids what the steps above needed"},
};

}  // namespace

std::span<const SetupStep> SetupSteps() { return kSteps; }

}  // namespace caisson::sandbox
