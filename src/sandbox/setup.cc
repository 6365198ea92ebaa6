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

// Order matters and is argued per line. Mounts need capabilities, so they come before the drop; the filter forbids
// mount and prctl calls, so it comes last; no_new_privs is what lets an unprivileged process install Landlock and
// seccomp. A sandbox that is made ahead does the lines of kAhead first, in this order, and the others when its request
// has come; none of the former needs one of the latter.
constexpr SetupStep kSteps[] = {
    {"descriptors", steps::CloseForeignDescriptors, When::kAhead,
     "what the supervisor had open is not ours, pipe ends least of all"},
    {"arguments", steps::ForgetArguments, When::kAhead,
     "everybody inside can read PID 1's, and they name files of the host"},
    {"id_maps", steps::AwaitIdMaps, When::kAhead,
     "until the supervisor has written them, every file we made would belong to nobody"},
    {"user", steps::BecomeInsideUser, When::kAhead,
     "all files below are made as the unprivileged inside user; no groups are kept"},
    {"propagation", steps::DetachPropagation, When::kAhead,
     "no mount of ours may reach the host, nor one of the host's reach us"},
    {"root", steps::MountRoot, When::kAhead, "a fresh tmpfs: the tree holds what we put there and nothing else"},
    {"system_directories", steps::BindSystemDirectories, When::kAhead,
     "programs and libraries, read-only, no set-user-id"},
    {"etc", steps::SynthesizeEtc, When::kAhead,
     "names and loader configuration without the host's accounts or secrets"},
    {"scratch", steps::MountScratch, When::kAhead, "the only writable file system, with byte and inode caps"},
    {"devices", steps::MountDevices, When::kAhead, "five harmless devices; nothing can make another"},
    {"proc", steps::MountProc, When::kAhead,
     "its own processes only, read-only, with the host's kernel details masked"},
    {"request", steps::TakeRequest, When::kWithRequest, "made ahead: from here on we know for whom"},
    {"workspace", steps::MountWorkspace, When::kWithRequest, "the source under test"},
    {"mounts", steps::MountExtras, When::kWithRequest, "what policy granted besides, by the descriptors it judged"},
    {"pivot", steps::PivotIntoRoot, When::kAheadOfRoot, "after this the host's tree has no name here"},
    {"read_only_root", steps::SealRoot, When::kWithRequest, "the tree is complete; nobody adds to it"},
    {"loopback", steps::RaiseLoopback, When::kAhead,
     "the only interface; the name-lookup socket exists so that look-ups are seen and refused at once"},
    {"hostname", steps::NameHost, When::kAhead, "the host's name is not the workload's business"},
    {"cgroup", steps::JoinCgroups, When::kAhead,
     "the supervisor made it meanwhile; limits hold before the first foreign byte is read"},
    {"cgroup_namespace", steps::HideCgroupPath, When::kAhead,
     "a second cgroup namespace, rooted where we are now, hides the host's path"},
    {"resource_limits", steps::SetResourceLimits, When::kWithRequest, "per-process caps under the cgroup's"},
    {"no_new_privs", steps::ForbidNewPrivileges, When::kAhead,
     "set-user-id and file capabilities give nothing from here on"},
    {"landlock", steps::RestrictPaths, When::kWithRequest, "second wall behind the read-only mounts"},
    {"capabilities", steps::DropCapabilities, When::kWithRequest, "all five sets empty and locked"},
    {"parent_death", steps::DieWithSupervisor, When::kAhead,
     "if the supervisor dies we die, and with PID 1 everything inside"},
    {"seccomp", steps::InstallFilter, When::kWithRequest, "last: it forbids what the steps above needed"},
};

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

}  // namespace

std::span<const SetupStep> SetupSteps() { return kSteps; }

void PointAtCommands(SetupContext& context) {
  for (const Command& command : context.spec->commands) {
    context.argv_pointers.push_back(Pointers(command.argv));
    context.env_pointers.push_back(Pointers(command.env));
    context.exec_candidates.push_back(ExecCandidates(command));
  }
}

std::unique_ptr<ExtendedProgram> ChooseFilter(Spec& spec, bool watched) {
  if (watched) spec.seccomp = spec.seccomp_watched;
  // The filter that goes in before the last capability goes out must let that happen.
  if (CAISSON_LEFT_OUT("no_new_privs")) spec.allowed_calls.push_back(SYS_capset);
  if (spec.allowed_calls.empty() && spec.denied_calls.empty()) return nullptr;
  auto extended = std::make_unique<ExtendedProgram>(*spec.seccomp, spec.allowed_calls, spec.denied_calls);
  spec.seccomp = &extended->program();
  return extended;
}

bool SameGround(const Spec& ground, const Spec& spec) {
  const auto parts = [](const Spec& of) {
    return std::tie(of.system_paths, of.etc_paths, of.devices, of.writable_tmp, of.writable_shm, of.masked_files,
                    of.masked_directories, of.proc_pids_only, of.share_ipc, of.share_uts, of.share_cgroup,
                    of.share_time, of.hostname, of.limits.cpu_millis);
  };
  return parts(ground) == parts(spec) && spec.stdio != Stdio::kTerminal;
}

}  // namespace caisson::sandbox
