#include "runtime/microvm/microvm.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "linux/files.h"
#include "runtime/microvm/initramfs.h"
#include "runtime/microvm/kernel.h"
#include "runtime/microvm/machine.h"
#include "runtime/native/lower.h"
#include "runtime/witnessed/agent_program.h"
#include "runtime/witnessed/lower.h"
#include "runtime/witnessed/pipes.h"
#include "runtime/witnessed/run.h"
#include "sandbox/idmap.h"
#include "sandbox/setup.h"
#include "sandbox/walls.h"

namespace caisson::runtime::microvm {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// The guest's kernel, agent and supervisor, beside what the plan lets the workload use.
constexpr int64_t kGuestBytes = 320 * kMiB;
constexpr size_t kMaxFileBytes = size_t{256} << 20;  // of a kernel or the agent
// An emulated processor on a busy machine.
constexpr int64_t kStartMs = 120'000;
constexpr int64_t kGraceMs = 15'000;
// KVM boots in well under a second where it works at all.
constexpr int64_t kKvmProbeMs = 5'000;
// Exists when a machine did not start with KVM since this host was started.
constexpr char kNoKvm[] = "/run/caisson/microvm-without-kvm";

std::string FindFirst(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// SECURITY: that the device can be opened says nothing: some hosts offer a KVM that boots no ordinary kernel. A machine
// must have started.
bool MayTryKvm() { return ::access("/dev/kvm", R_OK | W_OK) == 0 && ::access(kNoKvm, F_OK) != 0; }

void RememberThatKvmFails() { const UniqueFd mark(::open(kNoKvm, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)); }

class MicrovmContainer : public witnessed::PipedContainer {
 public:
  static Result<std::unique_ptr<MicrovmContainer>> Start(MachinePlan plan, sandbox::HostResources resources) {
    std::unique_ptr<MicrovmContainer> container(new MicrovmContainer(plan.kvm));
    CAISSON_TRY(UniqueFd port, container->MakeSocket());
    CAISSON_TRY(container->machine_, Machine::Start(std::move(plan), std::move(resources), std::move(port)));
    return container;
  }
  ~MicrovmContainer() override { MicrovmContainer::Kill(); }

  // Waits until the agent has sent something.
  Status AwaitStart(int64_t within_ms) {
    struct pollfd wait {
      input(), POLLIN, 0
    };
    const int64_t until = MonotonicNanos() / 1'000'000 + within_ms;
    int ready;
    do {
      ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(until - MonotonicNanos() / 1'000'000, 0)));
    } while (ready < 0 && errno == EINTR);
    char byte;
    if (ready > 0 && ::recv(input(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) return {};
    return Error::System(ready > 0 ? ECONNRESET : ETIMEDOUT,
                         "runtime microvm: the virtual machine did not start; it said: " + machine_->ReadLog());
  }

  // The counters of the machine's cgroup are those of QEMU. The guest's own tell of the workload, and come with its
  // outcome.
  Result<std::optional<sandbox::GroupCounters>> ReadCounters() override {
    return std::optional<sandbox::GroupCounters>();
  }
  int64_t start_ms() const override { return kStartMs; }
  int64_t grace_ms() const override { return kGraceMs; }

  void Kill() override {
    if (machine_) machine_->Kill();
    CloseStreams();
  }

  const Machine& machine() const { return *machine_; }
  bool kvm() const { return kvm_; }

 private:
  explicit MicrovmContainer(bool kvm) : kvm_(kvm) {}

  const bool kvm_;
  std::unique_ptr<Machine> machine_;
};

// The trees of the plan, each as the machine's file server shall see it.
class MountList {
 public:
  explicit MountList(uid_t first_host_id) : user_(first_host_id + sandbox::kInsideUid) {}

  // SECURITY: the tree is cloned from the judged descriptor; the file server serves that clone.
  Status Add(const policy::PlannedMount& planned) {
    struct stat info {};
    if (::fstat(planned.source.fd.get(), &info) != 0) return Error::System(errno, "stat a mount source");
    Result<UniqueFd> tree =
        sandbox::CloneWithOwner(planned.source.fd.get(), {info.st_uid, info.st_gid}, {user_, user_});
    if (!tree) return std::move(tree).error().In("mount " + planned.source.canonical);
    struct mount_attr attributes {};
    attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (planned.access != policy::Access::kReadWrite) attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (::mount_setattr(tree->get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)) != 0)
      return Error::System(errno, "mount " + planned.source.canonical);
    trees_.push_back(*std::move(tree));
    directories_.push_back(planned.source.is_directory);
    return {};
  }
  void MoveTo(MachinePlan& plan) {
    plan.mounts = std::move(trees_);
    plan.mounts_are_directories = std::move(directories_);
  }

 private:
  const uid_t user_;
  std::vector<UniqueFd> trees_;
  std::vector<bool> directories_;
};

// The host's trees that a sandbox of this spec shows, where they exist.
std::vector<ShownPath> FindShownPaths(const sandbox::Spec& spec) {
  std::vector<std::string> paths = spec.system_paths;
  paths.insert(paths.end(), spec.etc_paths.begin(), spec.etc_paths.end());
  std::sort(paths.begin(), paths.end());
  std::vector<ShownPath> shown;
  std::string covered;  // the directory that was added last
  for (const std::string& path : paths) {
    if (!covered.empty() && path.compare(0, covered.size(), covered) == 0) continue;
    char target[PATH_MAX];
    const bool is_top = path.rfind('/') == 0;
    if (const ssize_t size = ::readlink(path.c_str(), target, sizeof(target)); size > 0 && is_top) {
      shown.push_back({ShownPath::Kind::kLink, path, {target, static_cast<size_t>(size)}});
      continue;
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))) continue;
    const bool directory = S_ISDIR(info.st_mode);
    shown.push_back({directory ? ShownPath::Kind::kDirectory : ShownPath::Kind::kFile, path, ""});
    if (directory) covered = path + "/";
  }
  return shown;
}

Result<UniqueFd> CopyToMemory(std::string_view bytes) {
  CAISSON_TRY(UniqueFd file, linux_sys::OpenUnnamed(""));
  CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), bytes));
  return file;
}

Result<UniqueFd> MakeInitramfs(const Kernel& kernel, const std::string& agent) {
  InitramfsWriter writer;
  writer.AddDirectory("dev");
  writer.AddCharacterDevice("dev/console", 0600, 5, 1);
  CAISSON_TRY(const std::string program, linux_sys::ReadDocument(agent, kMaxFileBytes));
  writer.AddFile("init", 0755, program);
  writer.AddDirectory("modules");
  int number = 10;  // two digits, so that the order of names is the order of loading
  for (const std::string& module : kernel.modules) {
    CAISSON_TRY(const std::string bytes, linux_sys::ReadDocument(module, kMaxFileBytes));
    writer.AddFile("modules/" + std::to_string(number++) + "-" + module.substr(module.rfind('/') + 1), 0644, bytes);
  }
  return CopyToMemory(writer.Finish());
}

int64_t CountCpus(int64_t cpu_millis) {
  cpu_set_t available;
  const int64_t count = ::sched_getaffinity(0, sizeof(available), &available) == 0 ? CPU_COUNT(&available) : 1;
  return std::clamp<int64_t>((cpu_millis + 999) / 1000, 1, count);
}

// The walls around QEMU are read from outside when the guest is ready; the walls around the workload are what the guest
// told.
Result<IsolationReport> Describe(const MicrovmContainer& container, const agent::Ready& ready,
                                 const std::vector<std::string>& given_up) {
  if (!ready.isolation) return Error::Invalid("the agent did not tell of its sandbox");
  const pid_t pid = container.machine().pid();
  CAISSON_TRY(const UniqueFd root, linux_sys::Open("/proc/" + std::to_string(pid) + "/root", O_PATH | O_DIRECTORY));
  CAISSON_TRY(const sandbox::Walls outer, sandbox::ReadWalls(pid, root.get()));
  for (const char* const name : {"user", "pid", "mount", "network"}) {
    if (std::find(outer.namespaces.begin(), outer.namespaces.end(), name) == outer.namespaces.end())
      return Error::System(EPROTO, std::string("wall machine: QEMU runs in the ") + name + " namespace of the host");
  }
  if (!outer.no_new_privileges || !outer.read_only_root)
    return Error::System(EPROTO, "wall machine: QEMU runs without its walls");
  IsolationReport report = native::Describe(*ready.isolation, given_up);
  report.runtime = DescribeMicrovm().name;
  report.host_uid = int64_t{outer.host_uid};
  for (Wall& wall : report.walls) {
    if (wall.name == "id_range") {
      wall = {wall.name, WallState::kEnforced, "outside, QEMU's user is one of a range of its own"};
    } else {
      wall.evidence = "told by the guest: " + wall.evidence;
    }
  }
  const sandbox::HostResources& resources = container.machine().resources();
  Wall machine{"machine", WallState::kEnforced, "a virtual machine without a network device, "};
  machine.evidence += container.kvm() ? "by KVM" : "emulated";
  machine.evidence += "; QEMU has its own user, process, mount and network namespaces";
  if (resources.group) machine.evidence += " and cgroup";
  report.walls.insert(report.walls.begin(), std::move(machine));
  if (!container.kvm()) report.degraded.emplace_back("accel: no usable KVM; the processor is emulated, and slow");
  if (!resources.group) report.degraded.push_back("cgroup: QEMU has none (" + resources.cgroup_host.why_none + ")");
  return report;
}

class MicrovmRuntime : public Runtime {
 public:
  explicit MicrovmRuntime(std::string agent) : agent_(std::move(agent)) {}

  policy::RuntimeDescription Describe() const override { return DescribeMicrovm(); }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    CAISSON_TRY(Parts parts, FindParts());
    if (plan.has_network())
      return Error::Unsupported("network: the runtime microvm reaches no destination; use native");
    bool kvm = MayTryKvm();
    for (;;) {
      CAISSON_TRY(sandbox::HostResources resources, sandbox::HostResources::Prepare());
      if (!resources.group && !plan.profile.Allows("cgroup")) {
        return Error::Unsupported("wall cgroup: " + resources.cgroup_host.why_none +
                                  "; or use a profile whose allow_degraded lists cgroup");
      }
      CAISSON_TRY(MachinePlan machine, PlanMachine(plan, parts, resources.slot->first_host_id()));
      machine.kvm = kvm;
      CAISSON_TRY(std::unique_ptr<MicrovmContainer> container,
                  MicrovmContainer::Start(std::move(machine), std::move(resources)));
      const Status started = container->AwaitStart(kvm ? kKvmProbeMs : kStartMs);
      if (!started && kvm) {
        RememberThatKvmFails();
        kvm = false;
        continue;
      }
      if (!started) return started.error();
      return Begin(std::move(plan), std::move(container));
    }
  }

 private:
  struct Parts {
    std::string qemu, file_server, agent;
    Kernel kernel;
  };

  Result<Parts> FindParts() const {
    if (::geteuid() != 0)
      return Error::Unsupported(
          "runtime microvm: needs root, which gives QEMU a range of ids of its own; use the runtime native");
    Parts parts;
    parts.qemu = FindFirst({"/usr/local/bin/qemu-system-x86_64", "/usr/bin/qemu-system-x86_64"});
    parts.file_server = FindFirst({"/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"});
    if (parts.qemu.empty() || parts.file_server.empty()) {
      return Error::Unsupported(std::string("runtime microvm: ") + (parts.qemu.empty() ? "QEMU" : "virtiofsd") +
                                " is not installed; fix: apt-get install --no-install-recommends qemu-system-x86");
    }
    CAISSON_TRY(parts.kernel, FindKernel());
    CAISSON_TRY(parts.agent, witnessed::FindAgent(agent_, "microvm"));
    return parts;
  }

  static Result<MachinePlan> PlanMachine(const policy::RunPlan& plan, const Parts& parts, uid_t first_host_id) {
    MachinePlan machine;
    machine.qemu = parts.qemu;
    machine.file_server = parts.file_server;
    // The workspace is in the guest's memory more than once while it is written.
    int64_t files = 0;
    for (const policy::PlannedFile& file : plan.workspace_files)
      files += static_cast<int64_t>(file.bytes.size()) + 4096;
    machine.memory_bytes = (plan.limits.memory_bytes + kGuestBytes + 4 * files + kMiB - 1) / kMiB * kMiB;
    machine.cpus = CountCpus(plan.limits.cpu_millis);
    CAISSON_TRY(const std::string kernel, linux_sys::ReadDocument(parts.kernel.image, kMaxFileBytes));
    CAISSON_TRY(machine.kernel, CopyToMemory(kernel));
    CAISSON_TRY(machine.initramfs, MakeInitramfs(parts.kernel, parts.agent));
    MountList mounts(first_host_id);
    if (plan.workspace_mount) CAISSON_TRY_VOID(mounts.Add(*plan.workspace_mount));
    for (const policy::PlannedMount& mount : plan.mounts) CAISSON_TRY_VOID(mounts.Add(mount));
    mounts.MoveTo(machine);
    sandbox::Spec shown;
    shown.system_paths = plan.profile.system_paths;
    shown.etc_paths = plan.profile.etc_paths;
    machine.shown = FindShownPaths(shown);
    return machine;
  }

  static Result<std::unique_ptr<Run>> Begin(policy::RunPlan plan, std::unique_ptr<MicrovmContainer> container) {
    witnessed::LoweredPlan lowered;
    // What the file server shows is named by its place in this list; the spec has neither mounts nor files.
    if (plan.workspace_mount)
      lowered.agent.mounts.push_back({"/workspace", native::Lower(plan.workspace_mount->access)});
    for (const policy::PlannedMount& mount : plan.mounts)
      lowered.agent.mounts.push_back({mount.target, native::Lower(mount.access)});
    lowered.agent.workspace_is_mounted = plan.workspace_mount.has_value();
    plan.workspace_mount.reset();
    plan.mounts.clear();
    lowered.files = std::move(plan.workspace_files);
    plan.workspace_files.clear();
    CAISSON_TRY(native::LoweredPlan spec, native::Lower(std::move(plan), DescribeMicrovm()));
    lowered.agent.spec = std::move(spec.spec);
    lowered.environment = std::move(spec.environment);
    lowered.given_up = spec.given_up;
    const MicrovmContainer& machine = *container;
    return witnessed::BeginRun(std::move(container), std::move(lowered), [&](const agent::Ready& ready) {
      return microvm::Describe(machine, ready, spec.given_up);
    });
  }

  const std::string agent_;
};

}  // namespace

policy::RuntimeDescription DescribeMicrovm() {
  using policy::Ability;
  policy::RuntimeDescription description = native::DescribeNative();  // a native sandbox is what the guest has
  description.name = "microvm";
  description.strength = policy::Strength::kMicroVm;
  description.abilities = {Ability::kObservesWrites, Ability::kObservesNetwork, Ability::kObservesSystemCalls};
  return description;
}

std::unique_ptr<Runtime> MakeMicrovmRuntime(std::string agent) {
  return std::make_unique<MicrovmRuntime>(std::move(agent));
}

}  // namespace caisson::runtime::microvm
