// The steps that bring the source under test and granted paths in. Runs: child after clone.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "linux/syscalls.h"
#include "sandbox/mount_fd.h"
#include "sandbox/mutation.h"
#include "sandbox/private_copy.h"
#include "sandbox/setup.h"

namespace caisson::sandbox::steps {

namespace {

constexpr unsigned kWritableTree = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// SECURITY: a descriptor of the supervisor's mount namespace cannot be mounted in ours, so an unprivileged run opens
// the path a second time. What was opened is compared with what policy judged, and what was compared is what gets
// mounted: swapping the path in between makes the comparison fail, never the judgement.
int ReopenJudged(const Mount& mount, unsigned attributes) {
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const int fd = linux_sys::OpenAt2(AT_FDCWD, mount.source_path.c_str(), how);
  if (fd < 0) return -1;
  struct stat judged {
  }, opened{};
  if (::fstat(mount.source.get(), &judged) != 0 || ::fstat(fd, &opened) != 0) return -1;
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

// An overlay marks replaced directories with extended attributes of its upper layer. tmpfs has had them for ordinary
// users since Linux 6.6; without them removing a directory fails with EIO.
bool ScratchCarriesOverlays(int scratch) {
  const int probe = ::openat(scratch, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool carries = probe >= 0 && ::fsetxattr(probe, "user.caisson", "1", 1, 0) == 0;
  if (probe >= 0) ::close(probe);
  return carries;
}

// The same promise on older kernels: the tree is copied to scratch and the copy is what the workload gets.
int MountCopy(SetupContext& context, int lower_tree, int index, const char* target) {
  char name[32];
  ::snprintf(name, sizeof(name), "copy%d", index);
  if (::mkdirat(context.scratch_fs_fd, name, 0755) != 0) return -1;
  const int copy = ::openat(context.scratch_fs_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0 || CopyTree(lower_tree, copy, kKeepOwner) != 0) return -1;
  ::close(copy);
  ::close(lower_tree);
  return AttachAndClose(CloneTree(context.scratch_fs_fd, name, 0, 0), context.root_fd, target);
}

// Copy-on-write: the judged tree as the lower layer, a directory of scratch (and so under its caps) as the upper one.
int MountOverlay(SetupContext& context, int lower_tree, int index, const char* target) {
  if (!ScratchCarriesOverlays(context.scratch_fs_fd)) return MountCopy(context, lower_tree, index, target);
  char upper[32], work[32], lower_path[64], upper_path[64], work_path[64];
  ::snprintf(upper, sizeof(upper), "upper%d", index);
  ::snprintf(work, sizeof(work), "work%d", index);
  if (::mkdirat(context.scratch_fs_fd, upper, 0755) != 0 || ::mkdirat(context.scratch_fs_fd, work, 0755) != 0)
    return -1;
  const int upper_fd = ::openat(context.scratch_fs_fd, upper, O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int work_fd = ::openat(context.scratch_fs_fd, work, O_PATH | O_DIRECTORY | O_CLOEXEC);
  // Overlay wants its layers attached; the lower one goes where the overlay will cover it.
  if (upper_fd < 0 || work_fd < 0 ||
      ::move_mount(lower_tree, "", context.root_fd, target, MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return -1;
  }
  ::snprintf(lower_path, sizeof(lower_path), "/proc/self/fd/%d", lower_tree);
  ::snprintf(upper_path, sizeof(upper_path), "/proc/self/fd/%d", upper_fd);
  ::snprintf(work_path, sizeof(work_path), "/proc/self/fd/%d", work_fd);
  const int overlay = NewFilesystem(
      "overlay", {{"lowerdir", lower_path}, {"upperdir", upper_path}, {"workdir", work_path}, {"userxattr", nullptr}},
      kWritableTree);
  ::close(upper_fd);
  ::close(work_fd);
  return AttachAndClose(overlay, context.root_fd, target);
}

int AttachMount(SetupContext& context, const Mount& mount, int detached, int index) {
  const bool writable = mount.access == Access::kReadWrite || CAISSON_LEFT_OUT("read_only_workspace");
  const unsigned attributes = writable ? kWritableTree : kWritableTree | MOUNT_ATTR_RDONLY;
  const char* target = mount.target.c_str() + 1;
  struct stat info {};
  if (::fstat(mount.source.get(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) {
    if (MakeDirectories(context.root_fd, target, 0755) != 0) return errno;
  } else {
    char parent[4096];
    const char* slash = ::strrchr(target, '/');
    if (slash != nullptr) {
      const size_t length = static_cast<size_t>(slash - target);
      if (length >= sizeof(parent)) return ENAMETOOLONG;
      ::memcpy(parent, target, length);
      parent[length] = '\0';
      if (MakeDirectories(context.root_fd, parent, 0755) != 0) return errno;
    }
    if (MakeMountPointFile(context.root_fd, target) != 0) return errno;
  }
  int tree = detached;
  if (tree < 0) {
    tree = ReopenJudged(mount, attributes);
  } else {
    struct mount_attr attr {};
    attr.attr_set = attributes;
    attr.propagation = MS_PRIVATE;
    if (::mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) != 0) return errno;
  }
  if (tree < 0) return errno;
  const int result = mount.access == Access::kCopyOnWrite ? MountOverlay(context, tree, index, target)
                                                          : AttachAndClose(tree, context.root_fd, target);
  return result == 0 ? 0 : errno;
}

int WriteWorkspaceFiles(int directory, const std::vector<WorkspaceFile>& files) {
  char parent[4096];
  for (const WorkspaceFile& file : files) {
    if (const size_t slash = file.path.rfind('/'); slash != std::string::npos) {
      if (slash >= sizeof(parent)) return ENAMETOOLONG;
      ::memcpy(parent, file.path.data(), slash);
      parent[slash] = '\0';
      if (MakeDirectories(directory, parent, 0755) != 0) return errno;
    }
    int result = 0;
    switch (file.kind) {
      case FileKind::kRegular:
        result = WriteFileAt(directory, file.path.c_str(), file.bytes.data(), file.bytes.size(), file.mode);
        break;
      case FileKind::kSymlink:
        result = ::symlinkat(file.bytes.c_str(), directory, file.path.c_str());
        break;
      case FileKind::kDirectory:
        result = MakeDirectories(directory, file.path.c_str(), 0755);
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
    const int directory = ::openat(context.scratch_fs_fd, "workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return errno;
    if (const int error = WriteWorkspaceFiles(directory, spec.workspace_files); error != 0) return error;
    ::close(directory);
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
  // Every layer that needed it is mounted; the descriptor must not reach PID 1's life.
  ::close(context.scratch_fs_fd);
  context.scratch_fs_fd = -1;
  return 0;
}

}  // namespace caisson::sandbox::steps
