#include "runtime/oci/bundle.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "linux/files.h"
#include "policy/render.h"
#include "runtime/witnessed/root_files.h"
#include "sandbox/idmap.h"
#include "sandbox/setup.h"

namespace caisson::runtime::oci {

namespace {

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

  Result<std::vector<PrivateMount>> Write() {
    bundle_.agent = input_.agent;
    bundle_.first_host_id = input_.first_host_id;
    bundle_.cgroup = input_.cgroup;
    CAISSON_TRY_VOID(MakeRoot());
    CAISSON_TRY_VOID(MakeScratch());
    CAISSON_TRY_VOID(WriteRootFiles());
    CAISSON_TRY_VOID(MakeDirectory(input_.directory + "/mounts"));
    if (plan_.workspace_mount) CAISSON_TRY_VOID(Add(*plan_.workspace_mount));
    for (const policy::PlannedMount& planned : plan_.mounts) CAISSON_TRY_VOID(Add(planned));
    // As in native sandboxes, these are not executable.
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
    return std::move(mounts_);
  }

 private:
  // The root is a file system of its own that no other process sees; the container program makes the mount points.
  // Links of the host's root (/bin on a merged /usr) are links inside too.
  Status MakeRoot() {
    const std::string root = input_.directory + "/rootfs";
    CAISSON_TRY_VOID(MakeDirectory(root));
    PrivateMount mount;
    mount.target = root;
    mount.owner = static_cast<uid_t>(input_.first_host_id);
    mount.options = "mode=0755,size=2m,nr_inodes=1024,uid=" + std::to_string(input_.first_host_id) +
                    ",gid=" + std::to_string(input_.first_host_id);
    for (const char* directory : {"/var", "/var/cache", "/run"}) mount.directories.push_back({root + directory});
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

  Status WriteRootFiles() {
    CAISSON_TRY(const std::vector<witnessed::RootFile> files, witnessed::MakeRootFiles(plan_, sandbox::kInsideUid));
    CAISSON_TRY_VOID(MakeDirectory(input_.directory + "/files"));
    for (const witnessed::RootFile& file : files) {
      const std::string path = input_.directory + "/files" + file.path.substr(file.path.rfind('/'));
      CAISSON_TRY_VOID(WriteFile(path, file.text));
      bundle_.mounts.push_back({path, file.path, false});
    }
    return {};
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
  std::vector<PrivateMount> mounts_;
};

}  // namespace

Result<std::vector<PrivateMount>> WriteBundle(const policy::RunPlan& plan, const BundleInput& input) {
  return Writer(plan, input).Write();
}

}  // namespace caisson::runtime::oci
