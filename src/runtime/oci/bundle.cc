#include "runtime/oci/bundle.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string_view>
#include <utility>

#include "linux/files.h"
#include "policy/render.h"
#include "runtime/witnessed/root_files.h"
#include "sandbox/idmap.h"
#include "sandbox/mount_fd.h"
#include "sandbox/setup.h"

namespace caisson::runtime::oci {

namespace {

constexpr std::string_view kCpuStatistics = "/proc/stat";

Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0) return Error::System(errno, "make " + path);
  return {};
}

Status WriteFile(const std::string& path, std::string_view text) {
  CAISSON_TRY(const UniqueFd file, linux_sys::OpenOutput(path, O_WRONLY | O_CREAT | O_EXCL));
  if (::fchmod(file.get(), 0644) != 0) return Error::System(errno, "chmod " + path);
  return linux_sys::WriteAll(file.get(), text);
}

class Writer {
 public:
  Writer(const policy::RunPlan& plan, const BundleInput& input) : plan_(plan), input_(input) {}

  Result<WrittenBundle> Write() {
    bundle_.agent = input_.agent;
    bundle_.first_host_id = input_.first_host_id;
    bundle_.cgroup = input_.cgroup;
    bundle_.gvisor = input_.gvisor;
    bundle_.group_memory_bytes = input_.group_memory_bytes;
    bundle_.group_processes = input_.group_processes;
    CAISSON_TRY(root_files_, witnessed::MakeRootFiles(plan_, sandbox::kInsideUid));
    CAISSON_TRY_VOID(MakeRoot());
    CAISSON_TRY_VOID(input_.gvisor ? MakeWrittenPlaces() : MakeScratch());
    if (!input_.gvisor) ShowCpuStatistics();  // gVisor's kernel shows its own
    CAISSON_TRY_VOID(MakeDirectory(input_.directory + "/mounts"));
    if (plan_.workspace_mount) CAISSON_TRY_VOID(Add(*plan_.workspace_mount));
    for (const policy::PlannedMount& planned : plan_.mounts) CAISSON_TRY_VOID(Add(planned));
    // As in native sandboxes: loaders for 32 bits are not executed, because the filter ends what they load.
    for (const std::string& path : witnessed::FindOtherLoaders()) bundle_.mounts.push_back({path, path, false, false});
    policy::Profile profile = plan_.profile;
    profile.limits = plan_.limits;
    for (const auto* paths : {&profile.system_paths, &profile.etc_paths}) {
      for (const std::string& path : *paths) {
        struct stat info {};
        if (::lstat(path.c_str(), &info) == 0 && !S_ISLNK(info.st_mode)) bundle_.present.push_back(path);
      }
    }
    CAISSON_TRY(const std::string document, policy::render::OciBundle(profile, bundle_));
    CAISSON_TRY_VOID(WriteFile(input_.directory + "/config.json", document));
    return WrittenBundle{std::move(mounts_), std::move(scratch_)};
  }

 private:
  // The root is a file system of its own that no other process sees; the container program makes the mount points.
  // Links of the host's root (/bin on a merged /usr) are links inside too.
  Status MakeRoot() {
    const std::string root = input_.directory + "/rootfs";
    CAISSON_TRY_VOID(MakeDirectory(root));
    PrivateMount mount;
    mount.target = root;
    mount.plain = input_.gvisor;
    mount.owner = static_cast<uid_t>(input_.first_host_id);
    mount.options = "mode=0755,size=2m,nr_inodes=1024,uid=" + std::to_string(input_.first_host_id) +
                    ",gid=" + std::to_string(input_.first_host_id);
    for (const char* directory : {"/var", "/var/cache", "/run", "/etc"})
      mount.directories.push_back({root + directory});
    // In the root itself: a bind mount would name its source on the host in the workload's mount table.
    for (const witnessed::RootFile& file : root_files_) {
      if (file.path != kCpuStatistics) mount.files.push_back({root + file.path, file.text});
    }
    mount.links.push_back({root + "/var/tmp", "/tmp"});
    for (const std::string& path : plan_.profile.system_paths) {
      char target[PATH_MAX];
      const ssize_t size = ::readlink(path.c_str(), target, sizeof(target));
      if (size > 0 && path.rfind('/') == 0) mount.links.push_back({root + path, {target, static_cast<size_t>(size)}});
    }
    mounts_.push_back(std::move(mount));
    return {};
  }

  Status MakeScratch() {
    bundle_.scratch = input_.directory + "/scratch";
    CAISSON_TRY_VOID(MakeDirectory(bundle_.scratch));
    PrivateMount mount;
    mount.target = bundle_.scratch;
    mount.options = "mode=0755,size=" + std::to_string(plan_.limits.scratch_bytes) +
                    ",nr_inodes=" + std::to_string(plan_.limits.scratch_inodes);
    mount.owner = static_cast<uid_t>(input_.first_host_id + sandbox::kInsideUid);
    for (const std::string& path : plan_.profile.writable_paths)
      mount.directories.push_back(
          {bundle_.scratch + path.substr(path.rfind('/')), static_cast<mode_t>(path == "/scratch" ? 0755 : 01777)});
    if (!plan_.workspace_mount && plan_.workspace_access != policy::Access::kReadOnly) {
      mount.directories.push_back({bundle_.scratch + "/workspace"});
      bundle_.mounts.push_back({bundle_.scratch + "/workspace", "/workspace", true});
    } else if (!plan_.workspace_mount) {
      bundle_.workspace_bytes = input_.workspace_bytes + (int64_t{1} << 20);
    }
    mounts_.push_back(std::move(mount));
    return {};
  }

  // For gVisor: the same places, on file systems that this process keeps at hand.
  Status MakeWrittenPlaces() {
    const uid_t user = input_.first_host_id + sandbox::kInsideUid;
    bundle_.scratch = input_.directory + "/scratch";
    CAISSON_TRY(UniqueFd scratch, NewFiles(plan_.limits.scratch_bytes, user));
    for (const std::string& path : plan_.profile.writable_paths)
      CAISSON_TRY_VOID(MakePlace(scratch.get(), path, path == "/scratch" ? 0755 : 01777, user));
    scratch_ = UniqueFd(::fcntl(scratch.get(), F_DUPFD_CLOEXEC, 3));
    if (!scratch_) return Error::System(errno, "copy a descriptor");
    if (!plan_.workspace_mount && plan_.workspace_access != policy::Access::kReadOnly) {
      CAISSON_TRY_VOID(MakePlace(scratch.get(), "/workspace", 0755, user));
      const UniqueFd place = sandbox::OpenBeneath(scratch.get(), "workspace", O_RDONLY | O_DIRECTORY);
      CAISSON_TRY_VOID(WriteWorkspace(place, user));
      bundle_.mounts.push_back({bundle_.scratch + "/workspace", "/workspace", true});
    } else if (!plan_.workspace_mount) {
      CAISSON_TRY(UniqueFd workspace, NewFiles(input_.workspace_bytes + (int64_t{1} << 20), user));
      CAISSON_TRY_VOID(WriteWorkspace(workspace, user));
      struct mount_attr read_only {};
      read_only.attr_set = MOUNT_ATTR_RDONLY;
      if (::mount_setattr(workspace.get(), "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) != 0)
        return Error::System(errno, "wall workspace");
      const std::string source = input_.directory + "/workspace";
      CAISSON_TRY_VOID(AddTree(source, std::move(workspace)));
      bundle_.mounts.push_back({source, "/workspace", false});
    }
    return AddTree(bundle_.scratch, std::move(scratch));
  }

  // A file system of its own that is not in any tree yet.
  Result<UniqueFd> NewFiles(int64_t bytes, uid_t owner) const {
    const std::string size = std::to_string(bytes), inodes = std::to_string(plan_.limits.scratch_inodes),
                      user = std::to_string(owner);
    UniqueFd files(sandbox::NewFilesystem("tmpfs",
                                          {{"size", size.c_str()},
                                           {"nr_inodes", inodes.c_str()},
                                           {"mode", "0755"},
                                           {"uid", user.c_str()},
                                           {"gid", user.c_str()}},
                                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    if (!files) return Error::System(errno, "wall scratch");
    return files;
  }

  static Status MakePlace(int files, const std::string& path, mode_t mode, uid_t owner) {
    const char* name = path.c_str() + path.rfind('/') + 1;
    if (::mkdirat(files, name, 0755) != 0 || ::fchownat(files, name, owner, owner, AT_SYMLINK_NOFOLLOW) != 0 ||
        ::fchmodat(files, name, mode, 0) != 0)
      return Error::System(errno, "make " + path);
    return {};
  }

  Status AddTree(const std::string& target, UniqueFd tree) {
    CAISSON_TRY_VOID(MakeDirectory(target));
    PrivateMount mount;
    mount.kind = PrivateMount::Kind::kTree;
    mount.target = target;
    mount.tree = std::move(tree);
    mounts_.push_back(std::move(mount));
    return {};
  }

  // SECURITY: the file system is in no tree, every look-up stays in it and follows no link, and this thread has the
  // rights of the sandbox's user alone meanwhile.
  Status WriteWorkspace(const UniqueFd& workspace, uid_t user) const {
    if (!workspace) return Error::System(errno, "open the workspace");
    ::setfsgid(user);
    ::setfsuid(user);
    Status written;
    for (const policy::PlannedFile& file : input_.workspace_files) {
      written = WriteWorkspaceFile(workspace.get(), file);
      if (!written) break;
    }
    ::setfsuid(0);
    ::setfsgid(0);
    if (!written) return std::move(written).error().In("write the workspace");
    return {};
  }

  static Status WriteWorkspaceFile(int workspace, const policy::PlannedFile& file) {
    if (file.kind == policy::FileKind::kDirectory) {
      if (!sandbox::MakeDirectories(workspace, file.path)) return Error::System(errno, file.path);
      return {};
    }
    const size_t slash = file.path.rfind('/');
    const UniqueFd parent = slash == std::string::npos
                                ? UniqueFd(::fcntl(workspace, F_DUPFD_CLOEXEC, 3))
                                : sandbox::MakeDirectories(workspace, std::string_view(file.path).substr(0, slash));
    if (!parent) return Error::System(errno, file.path);
    const char* name = file.path.c_str() + (slash == std::string::npos ? 0 : slash + 1);
    if (file.kind == policy::FileKind::kSymlink) {
      if (::symlinkat(file.bytes.c_str(), parent.get(), name) != 0) return Error::System(errno, file.path);
      return {};
    }
    const UniqueFd opened(::openat(parent.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!opened || ::fchmod(opened.get(), file.mode) != 0) return Error::System(errno, file.path);
    return linux_sys::WriteAll(opened.get(), file.bytes);
  }

  // Beside the writable places and not in one, so it is shown as /proc/stat alone.
  void ShowCpuStatistics() {
    for (const witnessed::RootFile& file : root_files_) {
      if (file.path != kCpuStatistics) continue;
      const std::string path = bundle_.scratch + "/.stat";
      mounts_.back().files.push_back({path, file.text});
      bundle_.mounts.push_back({path, file.path, false});
    }
  }

  // SECURITY: the tree is cloned from the judged descriptor; the container program mounts that clone.
  Status Add(const policy::PlannedMount& planned) {
    struct stat info {};
    if (::fstat(planned.source.fd.get(), &info) != 0) return Error::System(errno, "stat a mount source");
    const auto user = static_cast<uid_t>(input_.first_host_id + sandbox::kInsideUid);
    Result<UniqueFd> tree = sandbox::CloneWithOwner(planned.source.fd.get(), {info.st_uid, info.st_gid}, {user, user});
    if (!tree) return std::move(tree).error().In("mount " + planned.source.canonical);
    struct mount_attr attributes {};
    attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (planned.access != policy::Access::kReadWrite) attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (::mount_setattr(tree->get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)) != 0)
      return Error::System(errno, "mount " + planned.source.canonical);
    const std::string place = input_.directory + "/mounts/" + std::to_string(bundle_.mounts.size());
    if (planned.source.is_directory)
      CAISSON_TRY_VOID(MakeDirectory(place));
    else
      CAISSON_TRY_VOID(WriteFile(place, ""));
    PrivateMount mount;
    mount.kind = PrivateMount::Kind::kTree;
    mount.target = place;
    mount.tree = *std::move(tree);
    mounts_.push_back(std::move(mount));
    std::string source = place;
    if (planned.access == policy::Access::kCopyOnWrite) {
      if (!planned.source.is_directory)
        return Error::Unsupported("mount " + planned.source.canonical + ": only a directory can be copied on write");
      CAISSON_TRY(source, AddOverlay(place));
    }
    bundle_.mounts.push_back({source, planned.target, planned.access != policy::Access::kReadOnly});
    return {};
  }

  Result<std::string> AddOverlay(const std::string& lower) {
    const std::string upper = lower + ".rw", merged = lower + ".cow";
    CAISSON_TRY_VOID(MakeDirectory(upper));
    CAISSON_TRY_VOID(MakeDirectory(merged));
    PrivateMount changes;
    changes.target = upper;
    changes.options = "mode=0755,size=" + std::to_string(plan_.limits.scratch_bytes) +
                      ",nr_inodes=" + std::to_string(plan_.limits.scratch_inodes);
    changes.directories = {{upper + "/upper"}, {upper + "/work"}};
    changes.owner = static_cast<uid_t>(input_.first_host_id + sandbox::kInsideUid);
    mounts_.push_back(std::move(changes));
    PrivateMount overlay;
    overlay.kind = PrivateMount::Kind::kOverlay;
    overlay.target = merged;
    overlay.options = "lowerdir=" + lower + ",upperdir=" + upper + "/upper,workdir=" + upper + "/work";
    mounts_.push_back(std::move(overlay));
    return merged;
  }

  const policy::RunPlan& plan_;
  const BundleInput& input_;
  policy::Bundle bundle_;
  std::vector<witnessed::RootFile> root_files_;
  std::vector<PrivateMount> mounts_;
  UniqueFd scratch_;
};

}  // namespace

Result<WrittenBundle> WriteBundle(const policy::RunPlan& plan, const BundleInput& input) {
  return Writer(plan, input).Write();
}

}  // namespace caisson::runtime::oci
