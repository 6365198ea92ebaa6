// The steps that mount the source under test and granted paths. Runs: child after clone.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "linux/syscalls.h"
#include "sandbox/mount_fd.h"
#include "sandbox/mutation.h"
#include "sandbox/private_copy.h"
#include "sandbox/setup.h"

namespace caisson::sandbox::steps {

namespace {

constexpr unsigned kWritableTree = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// SECURITY: a descriptor of the supervisor's mount namespace cannot be mounted in ours, so an unprivileged run opens
// the path a second time. The opened file is compared with the file that policy judged, and exactly the compared file
// gets mounted: swapping the path in between makes the comparison fail and cannot evade the judgement.
int ReopenJudged(int source, const std::string& path, unsigned attributes) {
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const int fd = linux_sys::OpenAt2(AT_FDCWD, path.c_str(), how);
  if (fd < 0) return -1;
  struct stat judged {
  }, opened{};
  if (::fstat(source, &judged) != 0 || ::fstat(fd, &opened) != 0) return -1;
  if (judged.st_dev != opened.st_dev || judged.st_ino != opened.st_ino) {
    errno = ESTALE;
    return -1;
  }
  const int tree = CloneTree(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, attributes);
  const int saved = errno;
  ::close(fd);
  errno = saved;
  return tree;
}

int AttachTemporarily(const UniqueFd& tree, const UniqueFd& place) {
  return ::move_mount(tree.get(), "", place.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

// An overlay holds its own copies of its layers. The layers themselves would stay in the workload's mountinfo and
// reveal the places on the host that they came from.
int Detach(const UniqueFd& tree) {
  char path[64];
  ::snprintf(path, sizeof(path), "/proc/self/fd/%d", tree.get());
  return ::umount2(path, MNT_DETACH);
}

// An overlay marks replaced directories with extended attributes of its upper layer. tmpfs has had them for ordinary
// users since Linux 6.6; without them removing a directory fails with EIO.
bool ScratchCarriesOverlays(int scratch) {
  const int probe = ::openat(scratch, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool carries = probe >= 0 && ::fsetxattr(probe, "user.caisson", "1", 1, 0) == 0;
  if (probe >= 0) ::close(probe);
  return carries;
}

// The same guarantee on older kernels: the tree is copied to scratch, and the workload gets the copy.
int MountCopy(SetupContext& context, const UniqueFd& lower, int index, const UniqueFd& place) {
  char name[32];
  ::snprintf(name, sizeof(name), "copy%d", index);
  if (::mkdirat(context.scratch_fs_fd, name, 0755) != 0) return -1;
  const UniqueFd copy = OpenBeneath(context.scratch_fs_fd, name, O_RDONLY | O_DIRECTORY);
  if (!copy || CopyTree(lower.get(), copy.get(), kKeepOwner) != 0) return -1;
  return AttachAt(UniqueFd(CloneTree(context.scratch_fs_fd, name, 0, 0)), place);
}

// Makes a detached overlay of `lower` and of the upper layer in `directory`. Overlay requires attached layers, so the
// lower layer is attached where the overlay will be.
UniqueFd MakeOverlay(const UniqueFd& directory, const char* upper, const char* work, const UniqueFd& lower,
                     const UniqueFd& place) {
  const UniqueFd upper_fd = OpenBeneath(directory.get(), upper, O_PATH | O_DIRECTORY);
  const UniqueFd work_fd = OpenBeneath(directory.get(), work, O_PATH | O_DIRECTORY);
  if (!upper_fd || !work_fd || AttachTemporarily(lower, place) != 0) return {};
  char lower_path[64], upper_path[64], work_path[64];
  ::snprintf(lower_path, sizeof(lower_path), "/proc/self/fd/%d", lower.get());
  ::snprintf(upper_path, sizeof(upper_path), "/proc/self/fd/%d", upper_fd.get());
  ::snprintf(work_path, sizeof(work_path), "/proc/self/fd/%d", work_fd.get());
  UniqueFd overlay(NewFilesystem(
      "overlay", {{"lowerdir", lower_path}, {"upperdir", upper_path}, {"workdir", work_path}, {"userxattr", nullptr}},
      kWritableTree));
  if (!overlay || (!CAISSON_LEFT_OUT("lower_layer") && Detach(lower) != 0)) return {};
  return overlay;
}

// Copy-on-write: the judged tree as the lower layer, a directory of scratch (and so under its caps) as the upper one.
int MountOverlay(SetupContext& context, const UniqueFd& lower, int index, const UniqueFd& place) {
  if (!ScratchCarriesOverlays(context.scratch_fs_fd)) return MountCopy(context, lower, index, place);
  char upper[32], work[32];
  ::snprintf(upper, sizeof(upper), "upper%d", index);
  ::snprintf(work, sizeof(work), "work%d", index);
  if (::mkdirat(context.scratch_fs_fd, upper, 0755) != 0 || ::mkdirat(context.scratch_fs_fd, work, 0755) != 0)
    return -1;
  const UniqueFd scratch = OpenBeneath(context.scratch_fs_fd, ".", O_PATH | O_DIRECTORY);
  UniqueFd overlay = scratch ? MakeOverlay(scratch, upper, work, lower, place) : UniqueFd();
  return overlay ? AttachAt(std::move(overlay), place) : -1;
}

// Copy-on-write with an upper layer that is a directory of the caller's, and so outlives the sandbox.
int MountLayered(SetupContext& context, const Layer& layer, const UniqueFd& lower, const UniqueFd& place) {
  UniqueFd kept(context.layer_fd);
  if (kept) {
    struct mount_attr attr {};
    attr.attr_set = kWritableTree;
    attr.propagation = MS_PRIVATE;
    if (::mount_setattr(kept.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) != 0) return -1;
  } else {
    kept.Reset(ReopenJudged(layer.source.get(), layer.source_path, kWritableTree));
  }
  if (!kept || AttachTemporarily(kept, place) != 0) return -1;
  UniqueFd overlay = MakeOverlay(kept, "upper", "work", lower, place);
  return overlay && Detach(kept) == 0 ? AttachAt(std::move(overlay), place) : -1;
}

bool IsAtOrBelow(std::string_view path, std::string_view tree) {
  return path.substr(0, tree.size()) == tree && (path.size() == tree.size() || path[tree.size()] == '/');
}

// SECURITY: the trees that the sandbox consists of. A mount in one of them would replace the workload's programs, or
// files that set-up wrote; a mount above one would cover them.
bool MeetsSystemTree(const Spec& spec, std::string_view target) {
  const auto meets = [target](std::string_view tree) { return IsAtOrBelow(target, tree) || IsAtOrBelow(tree, target); };
  for (const char* tree : {"/dev", "/etc", "/proc", "/sys"}) {
    if (meets(tree)) return true;
  }
  for (const std::string& tree : spec.system_paths) {
    if (meets(tree)) return true;
  }
  if (!spec.root) return false;
  for (const RootEntry& entry : spec.root->entries) {
    const std::string_view first = target.substr(1, target.find('/', 1) - 1);
    if (entry.kind != RootEntryKind::kEmpty && first == entry.name) return true;
  }
  return false;
}

// SECURITY: whether a missing mount point for `target` may be created, which depends on the tree that would contain it.
// A tree mounted from the host belongs to the host, where a new directory would stay, and a read-only workspace must
// hold exactly what was submitted. The upper layer of a copy-on-write tree and all other places belong to the sandbox.
// `earlier` is the number of mounts that are attached already.
bool MayMakeMountPoint(const Spec& spec, std::string_view target, size_t earlier) {
  const auto lies_in = [target](std::string_view tree) {
    return target.size() > tree.size() && IsAtOrBelow(target, tree);
  };
  bool own = true;
  if (lies_in("/workspace")) {
    own = spec.workspace ? spec.workspace->access == Access::kCopyOnWrite
                         : spec.workspace_files_writable || spec.workspace_files.empty();
  }
  // The last mount around the target is the visible one: it covers the others, or is inside them.
  for (size_t i = 0; i < earlier; ++i) {
    if (lies_in(spec.mounts[i].target)) own = spec.mounts[i].access == Access::kCopyOnWrite;
  }
  return own;
}

// `index`: 0 for the workspace, from 1 for the mounts.
int AttachMount(SetupContext& context, const Mount& mount, int detached, int index) {
  context.mount_at_work = index;
  const bool writable = mount.access == Access::kReadWrite || CAISSON_LEFT_OUT("read_only_workspace");
  const unsigned attributes = writable ? kWritableTree : kWritableTree | MOUNT_ATTR_RDONLY;
  struct stat info {};
  if (::fstat(mount.source.get(), &info) != 0) return errno;
  context.target_at_work = true;
  if (MeetsSystemTree(*context.spec, mount.target) && !CAISSON_LEFT_OUT("mount_targets")) return EBUSY;
  const bool may_make = index == 0 || MayMakeMountPoint(*context.spec, mount.target, static_cast<size_t>(index) - 1);
  const UniqueFd place = OpenMountPoint(context.root_fd, mount.target.c_str() + 1, S_ISDIR(info.st_mode), may_make);
  if (!place) return errno;
  context.target_at_work = false;
  UniqueFd tree(detached);
  if (!tree) {
    tree.Reset(ReopenJudged(mount.source.get(), mount.source_path, attributes));
  } else {
    struct mount_attr attr {};
    attr.attr_set = attributes;
    attr.propagation = MS_PRIVATE;
    if (::mount_setattr(tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) != 0) return errno;
  }
  if (!tree) return errno;
  int result = 0;
  if (mount.access != Access::kCopyOnWrite) {
    result = AttachAt(std::move(tree), place);
  } else if (index == 0 && context.spec->workspace_layer) {
    result = MountLayered(context, *context.spec->workspace_layer, tree, place);
  } else {
    result = MountOverlay(context, tree, index, place);
  }
  if (result != 0) return errno;
  context.mount_at_work = -1;
  return 0;
}

// SECURITY: a link among the files must not decide where later files are created, so the directory of each file is
// looked up without following links.
int WriteWorkspaceFiles(int directory, const std::vector<WorkspaceFile>& files) {
  std::string_view opened;  // the directory of the previous file, which most files share
  UniqueFd parent;
  for (const WorkspaceFile& file : files) {
    const std::string_view path = file.path;
    const size_t slash = path.rfind('/');
    const char* name = file.path.c_str();
    int in = directory;
    if (slash != path.npos) {
      if (!parent || opened != path.substr(0, slash)) {
        opened = path.substr(0, slash);
        parent = MakeDirectories(directory, opened);
        if (!parent) return errno;
      }
      in = parent.get();
      name += slash + 1;
    }
    int result = 0;
    switch (file.kind) {
      case FileKind::kRegular:
        result = WriteFileAt(in, name, file.bytes.data(), file.bytes.size(), file.mode);
        break;
      case FileKind::kSymlink:
        result = ::symlinkat(file.bytes.c_str(), in, name);
        break;
      case FileKind::kDirectory:
        result = ::mkdirat(in, name, 0755);
        if (result != 0 && errno == EEXIST) result = 0;
        break;
    }
    if (result != 0) return errno;
  }
  return 0;
}

}  // namespace

int MountWorkspace(SetupContext& context) {
  const Spec& spec = *context.spec;
  if (spec.workspace) return AttachMount(context, *spec.workspace, context.mount_fds[0], 0);
  if (spec.workspace_files_writable) {
    if (::mkdirat(context.scratch_fs_fd, "workspace", 0755) != 0) return errno;
    const UniqueFd directory = OpenBeneath(context.scratch_fs_fd, "workspace", O_PATH | O_DIRECTORY);
    if (!directory) return errno;
    if (const int error = WriteWorkspaceFiles(directory.get(), spec.workspace_files); error != 0) return error;
    const int tree = CloneTree(context.scratch_fs_fd, "workspace", 0, kWritableTree);
    return AttachAndClose(tree, context.root_fd, "workspace") == 0 ? 0 : errno;
  }
  if (spec.workspace_files.empty()) return 0;  // the empty directory of the read-only root
  const int fs = NewFilesystem("tmpfs", {{"mode", "0755"}}, kWritableTree);
  if (fs < 0) return errno;
  if (const int error = WriteWorkspaceFiles(fs, spec.workspace_files); error != 0) return error;
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_RDONLY;
  if (CAISSON_LEFT_OUT("read_only_workspace")) attr.attr_set = 0;
  if (::mount_setattr(fs, "", AT_EMPTY_PATH, &attr, sizeof(attr)) != 0) return errno;
  return AttachAndClose(fs, context.root_fd, "workspace") == 0 ? 0 : errno;
}

int MountExtras(SetupContext& context) {
  for (size_t i = 0; i < context.spec->mounts.size(); ++i) {
    const int error = AttachMount(context, context.spec->mounts[i], context.mount_fds[i + 1], static_cast<int>(i) + 1);
    if (error != 0) return error;
  }
  const Spec& spec = *context.spec;
  if (spec.workspace ? spec.workspace->access != Access::kReadOnly : spec.workspace_files_writable) {
    context.workspace_fd = ::openat(context.root_fd, "workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (context.workspace_fd < 0) return errno;
  }
  // Every layer that needed the descriptor is mounted; PID 1 must not keep it.
  ::close(context.scratch_fs_fd);
  context.scratch_fs_fd = -1;
  return 0;
}

}  // namespace caisson::sandbox::steps
