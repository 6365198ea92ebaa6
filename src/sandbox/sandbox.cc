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
#include "sandbox/trust_bundle.h"

namespace caisson::sandbox {

namespace {

constexpr char kPrivateCopySize[] = "256m";

// The resources that neither a wall nor a meter covers where no cgroup can be created; one entry for each kind of
// resource, by its name in tests/escape/resources.yaml.
constexpr const char* kLossesWithoutCgroup[] = {
    "cpu: not limited without a cgroup",
    "shared_memory: pages that no process maps or has open are not counted without a cgroup",
    "pipes: what they hold is limited for all programs of the user together (fs.pipe-user-pages-soft)",
    "kernel_memory: file names, epoll entries and the kernel's other small objects are not counted without a cgroup",
};

bool FitsHandover(const Spec& baseline, const Spec& spec) {
  return MatchesBaseline(baseline, spec) && spec.mounts.size() < Handover::kMaxMounts;
}

// Creates a detached tmpfs with a copy of the directory or file at `source`; the copy belongs to `owner`.
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
  CAISSON_TRY(HostResources resources, HostResources::Prepare());
  return Create(std::move(spec), std::move(resources));
}

Result<std::unique_ptr<Sandbox>> Sandbox::Create(Spec spec, HostResources resources) {
  std::unique_ptr<Sandbox> sandbox(new Sandbox(std::move(spec), std::move(resources)));
  CAISSON_TRY_VOID(sandbox->Build());
  return sandbox;
}

Sandbox::Sandbox(Spec spec, HostResources resources) : spec_(std::move(spec)), resources_(std::move(resources)) {
  network_ = std::move(spec_.network);
  spec_.network.reset();
}

Sandbox::~Sandbox() { Kill(); }

Status Sandbox::Build() {
  CAISSON_CHECK(spec_.seccomp != nullptr);
  context_.spec = &spec_;
  // A parked PID 1 that does not fit this spec is of no use; its host resources still are.
  if (resources_.first.lives() && (spec_.live || !FitsHandover(resources_.expected->baseline, spec_)))
    resources_.first.Kill();
  if (network_) {
    CAISSON_TRY(egress_, EgressLink::Start(*network_));  // starts in parallel to the steps below
    CAISSON_TRY(spec_.trust_bundle, ReadTrustBundle());
    if (!network_->credentials.empty()) {
      CAISSON_TRY(const std::string authority, egress_->ReadAuthority());
      spec_.trust_bundle += authority;
    }
  }
  const bool ahead = resources_.first.lives();
  if (ahead) {
    isolation_.start = resources_.expected->interpreter != nullptr ? Start::kInterpreter : Start::kParked;
    // Sends the spec unchanged, before the filter is chosen: PID 1 makes the same choice itself.
    CAISSON_TRY_VOID(resources_.expected->transfer.send(resources_.first.control(), spec_));
  }
  CAISSON_TRY_VOID(PrepareIdentity());
  CAISSON_TRY_VOID(PrepareMounts());
  CAISSON_TRY_VOID(PrepareImage());
  CAISSON_TRY_VOID(ahead ? HandOverToFirst() : MakeFirst());
  CAISSON_TRY_VOID(AwaitReady());
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
  isolation_.cgroup_driver = resources_.cgroup_host.driver;
  const bool watched = resources_.cgroup_host.driver == CgroupDriver::kNone;
  if (watched) {
    if (!spec_.allow_watched_limits) {
      return Error::Unsupported("wall cgroup: " + resources_.cgroup_host.why_none +
                                "; or use a profile whose allow_degraded lists cgroup");
    }
    if (spec_.seccomp_watched == nullptr) {
      return Error::Unsupported("wall cgroup: the filter " + std::string(spec_.seccomp->name) +
                                " has no variant that counts processes");
    }
    isolation_.degraded.push_back("cgroup: limits are watched, not enforced by a cgroup (" +
                                  resources_.cgroup_host.why_none + ")");
    for (const char* loss : kLossesWithoutCgroup) isolation_.degraded.emplace_back(loss);
    if (spec_.share_ipc)
      isolation_.degraded.push_back("segments: System V memory is shared with the host, not counted");
  }
  if (!resources_.cgroup_host.why_no_cpu.empty()) {
    if (!spec_.allow_watched_limits) return Error::Unsupported("wall cgroup: " + resources_.cgroup_host.why_no_cpu);
    isolation_.degraded.push_back("cpu: not limited (" + resources_.cgroup_host.why_no_cpu + ")");
  }
  extended_ = ChooseFilter(spec_, watched);
  isolation_.own_id_range = resources_.has_id_range();
  host_uid_ = isolation_.own_id_range ? resources_.slot->first_host_id() + kInsideUid : ::geteuid();
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("user_namespace")) host_uid_ = kInsideUid;
#endif
  return {};
}

Status Sandbox::PrepareMounts() {
  std::vector<const Mount*> mounts = {spec_.workspace ? &*spec_.workspace : nullptr};
  for (const Mount& mount : spec_.mounts) mounts.push_back(&mount);
  for (const Mount* mount : mounts) {
    context_.mount_fds.push_back(-1);
    if (mount == nullptr || !isolation_.own_id_range) continue;
    const uid_t first = resources_.slot->first_host_id();
    struct stat info {};
    if (::fstat(mount->source.get(), &info) != 0) return Error::System(errno, "stat a mount source");
    Result<UniqueFd> tree =
        CloneWithOwner(mount->source.get(), spec_.mount_owner.value_or(Owner{info.st_uid, info.st_gid}),
                       {first + kInsideUid, first + kInsideGid});
    // For a file system that cannot be id-mapped (tmpfs before Linux 6.3) a copy suffices, unless writes must reach the
    // host. SECURITY: no copy is made either when another user's rights apply, because the supervisor would copy files
    // that this user may not read.
    if (!tree && tree.error().kind == ErrorKind::kUnsupported && mount->access != Access::kReadWrite &&
        !spec_.mount_owner) {
      tree = MakePrivateCopy(mount->source.get(), first + kInsideUid);
    }
    if (!tree) return std::move(tree).error().In("mount " + mount->source_path);
    context_.mount_fds.back() = tree->get();
    child_fds_.push_back(*std::move(tree));
  }
  return PrepareLayer();
}

Status Sandbox::PrepareLayer() {
  if (!spec_.workspace_layer || !isolation_.own_id_range) return {};
  const uid_t first = resources_.slot->first_host_id();
  struct stat info {};
  if (::fstat(spec_.workspace_layer->source.get(), &info) != 0)
    return Error::System(errno, "stat the workspace's layer");
  Result<UniqueFd> tree = CloneWithOwner(spec_.workspace_layer->source.get(), {info.st_uid, info.st_gid},
                                         {first + kInsideUid, first + kInsideGid});
  if (!tree) return std::move(tree).error().In("workspace layer " + spec_.workspace_layer->source_path);
  context_.layer_fd = tree->get();
  child_fds_.push_back(*std::move(tree));
  return {};
}

// An image is shown with the owners it has: its files are readable for all users, so no id map is needed.
Status Sandbox::PrepareImage() {
  if (!spec_.root || !isolation_.own_id_range) return {};
  UniqueFd tree(::open_tree(spec_.root->source.get(), "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
  if (!tree) return Error::System(errno, "clone the image at " + spec_.root->source_path);
  context_.image_tree_fd = tree.get();
  child_fds_.push_back(std::move(tree));
  return {};
}

Status Sandbox::MakeFirst() {
#ifdef CAISSON_TEST_HOOKS
  const auto steps = SetupSteps();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (spec_.fail_step == steps[i].name) context_.fail_step = static_cast<int>(i);
  }
#endif
  for (const UniqueFd& fd : child_fds_) context_.kept_fds.push_back(fd.get());
  if (spec_.root && !isolation_.own_id_range) context_.kept_fds.push_back(spec_.root->source.get());
  if (spec_.workspace) context_.kept_fds.push_back(spec_.workspace->source.get());
  if (spec_.workspace_layer) context_.kept_fds.push_back(spec_.workspace_layer->source.get());
  for (const Mount& mount : spec_.mounts) context_.kept_fds.push_back(mount.source.get());
  CAISSON_TRY(first_, InitProcess::Clone(context_, resources_));
  child_fds_.clear();
  // When PID 1 has already failed, every operation on it fails too; the error that PID 1 reported is the cause.
  Status status = first_.WriteIdMaps(resources_);
  if (status) status = ApplyLimits();
  if (status) status = first_.SendCgroups(resources_.group.get());
  if (status) return {};
  const Result<Report> reported = first_.AwaitReport(&spec_);
  return reported ? std::move(status) : Status(reported.error());
}

Status Sandbox::HandOverToFirst() {
  first_ = std::move(resources_.first);
  Handover handover{};
  std::vector<int> fds;
  handover.mounts = static_cast<uint32_t>(context_.mount_fds.size());
  for (size_t i = 0; i < context_.mount_fds.size(); ++i) {
    if ((handover.has_mount[i] = context_.mount_fds[i] >= 0 ? 1 : 0) != 0) fds.push_back(context_.mount_fds[i]);
  }
  if (!SendWithDescriptors(first_.control(), &handover, sizeof(handover), fds.data(), fds.size()))
    return Error::System(errno, "hand the request to PID 1");
  child_fds_.clear();
  return ApplyLimits();
}

Status Sandbox::ApplyLimits() {
  if (!resources_.group) return {};
  Status applied = resources_.group->Apply(spec_.limits, !spec_.live);
  return applied ? std::move(applied) : std::move(applied).error().In("wall cgroup");
}

void Sandbox::ReclaimStale() const {
  if (!resources_.group) return;
  // With many slots, inspects only some, different ones each time: inspecting a thousand takes longer than many runs.
  constexpr size_t kMostLookedAt = 64;
  const std::vector<int> numbers = LimitGroup::ListSlots(resources_.cgroup_host);
  const auto start = static_cast<size_t>(resources_.slot->number());
  for (size_t i = 0; i < std::min(numbers.size(), kMostLookedAt); ++i) {
    const int number = numbers[(start + i) % numbers.size()];
    if (number == resources_.slot->number()) continue;
    if (Result<Slot> stale = Slot::AcquireNumber(Slot::DefaultDirectory(), number))
      LimitGroup::Reclaim(resources_.cgroup_host, number);
  }
}

Status Sandbox::AwaitReady() {
  CAISSON_TRY(const Report report, first_.AwaitReport(&spec_));
  UniqueFd listener, dns, dns_listener;
  TreeMeter::Views views;
  for (const auto& [number, mine] :
       {std::pair{report.root_fd, &root_}, std::pair{report.scratch_fd, &scratch_},
        std::pair{report.workspace_fd, &workspace_}, std::pair{report.proc_fd, &proc_},
        std::pair{report.listener_fd, &listener}, std::pair{report.dns_fd, &dns},
        std::pair{report.dns_listener_fd, &dns_listener}, std::pair{report.segments_fd, &views.segments},
        std::pair{report.diagnosis_fd, &views.diagnosis}}) {
    if (number < 0) continue;
    mine->Reset(linux_sys::PidfdGetFd(first_.pidfd(), number));
    if (!mine->valid()) {
      Error error = Error::System(errno, "take a descriptor from PID 1");
      if (error.errno_value == EPERM) error.message += "; if kernel.yama.ptrace_scope is 3, set it to 2 or lower";
      return error;
    }
  }
  Result<Walls> walls = ReadWalls(first_.pid(), root_.get());
  if (walls) isolation_.walls = *std::move(walls);
#ifndef CAISSON_MUTATIONS  // where walls are left out on purpose
  if (!walls) return std::move(walls).error();
  // SECURITY: set-up fails when one of its steps fails. This check shows that the steps had their effect.
  if (const std::string missing = FindMissingWall(isolation_.walls, spec_); !missing.empty())
    return Error::System(EPROTO, "wall " + missing + ": PID 1 is ready and does not stand behind it");
#endif
  if (resources_.dns) {
    dns = std::move(resources_.dns);
    dns_listener = std::move(resources_.dns_listener);
  }
  CAISSON_TRY_VOID(ServeNames(std::move(dns), std::move(dns_listener)));

  Observer::Options options;
  options.writable = {"/scratch"};
  if (spec_.writable_tmp) options.writable.emplace_back("/tmp");
  if (spec_.writable_shm) options.writable.emplace_back("/dev/shm");
  if (workspace_) options.writable.push_back("/workspace");
  for (const Mount& mount : spec_.mounts) {
    (mount.access != Access::kReadOnly ? options.writable : options.read_only).push_back(mount.target);
  }
  options.ignored_components = spec_.ignored_write_components;
  options.scratch_bytes = spec_.limits.scratch_bytes;
  UniqueFd root(::fcntl(root_.get(), F_DUPFD_CLOEXEC, 3));
  if (!root) return Error::System(errno, "copy a descriptor");
  if (egress_) {
    options.is_served = [this](const Peer& peer) { return IsServed(peer); };
    options.name_at = [this](uint32_t address) { return egress_->NameAt(address); };
  }
  observer_ = std::make_unique<Observer>(std::move(listener), std::move(root), *spec_.seccomp, std::move(options));
  if (resources_.cgroup_host.driver != CgroupDriver::kNone) return {};
  struct stat info {};
  if (::fstat(scratch_.get(), &info) != 0) return Error::System(errno, "stat scratch");
  views.scratch = info.st_dev;
  views.proc = std::move(proc_);
  if (!views.diagnosis) isolation_.degraded.push_back("socket_memory: this kernel does not say what sockets hold");
  meter_ = std::make_unique<TreeMeter>(std::move(views));
  return {};
}

Status Sandbox::ServeNames(UniqueFd dns, UniqueFd dns_listener) {
  if (!egress_) {
    dns_ = std::make_unique<DnsServer>(std::move(dns), std::move(dns_listener));
    if (!spec_.live) return {};
    CAISSON_TRY(inside_, InsideSockets::Of(first_.pid()));
    return {};
  }
  CAISSON_TRY(InsideSockets sockets, InsideSockets::Of(first_.pid()));
  return egress_->Connect(std::move(sockets), std::move(dns), std::move(dns_listener));
}

bool Sandbox::IsServed(const Peer& peer) const {
  if (!peer.ipv4) return false;
  // Resolvers sort addresses by connecting a datagram socket to port 0; this sends nothing.
  const uint32_t behind = *peer.ipv4 - network_->pool;
  if (peer.port == 0 && behind < uint64_t{1} << (32 - network_->pool_bits)) return true;
  return egress_->Serves(*peer.ipv4, peer.port);
}

Collected Sandbox::Collect(const std::vector<std::string>& globs) {
  if (!is_quiet_ && !CAISSON_LEFT_OUT("kill_before_collecting")) Kill();
  const auto wanted = [&](const std::string& path) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return MatchesGlob(path, glob); });
  };
  Collected collected;
  CollectFiles(scratch_.get(), "/scratch", wanted, {}, collected);
  if (workspace_) CollectFiles(workspace_.get(), "/workspace", wanted, {}, collected);
  return collected;
}

InsideFiles Sandbox::files() const {
  std::optional<uid_t> owner;
  if (isolation_.own_id_range) owner = host_uid_;
  return InsideFiles(root_.get(), owner);
}

}  // namespace caisson::sandbox
