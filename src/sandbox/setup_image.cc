// The steps that show a root image instead of the host's programs. Runs: child after clone.
//
// SECURITY: the author of the image controls every name, link and file in it, and the host's tree is still reachable
// while these steps run. So no path of the image is looked up except one component at a time through OpenBeneath, which
// follows no link and never leaves the image. Links of its top directory are recreated as text; only the workload
// follows them, inside. Mounts are read-only, without set-user-id and without devices: the tree is shared by all
// sandboxes that use the image.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "linux/syscalls.h"
#include "sandbox/mount_fd.h"
#include "sandbox/mutation.h"
#include "sandbox/setup.h"

namespace caisson::sandbox::steps {

namespace {

constexpr unsigned kImageTree = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
// Where the whole image is mounted while its parts are taken from it. The scratch file system is mounted over it later,
// and nothing inside can remove that. Unmounting it instead would make every start wait for the kernel's RCU.
constexpr char kPlace[] = "scratch";

// A descriptor of the supervisor's mount namespace cannot be mounted in ours, so an unprivileged run opens the path a
// second time, and mounts exactly the directory that the store opened and locked.
UniqueFd ReopenImage(const RootImage& image) {
  struct open_how how {};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const UniqueFd opened(linux_sys::OpenAt2(AT_FDCWD, image.source_path.c_str(), how));
  struct stat expected {
  }, found{};
  if (!opened || ::fstat(image.source.get(), &expected) != 0 || ::fstat(opened.get(), &found) != 0) return UniqueFd();
  if (expected.st_dev != found.st_dev || expected.st_ino != found.st_ino) return errno = ESTALE, UniqueFd();
  return UniqueFd(CloneTree(opened.get(), "", AT_EMPTY_PATH, 0));
}

int ShowEntry(const SetupContext& context, const RootEntry& entry) {
  const char* name = entry.name.c_str();
  switch (entry.kind) {
    case RootEntryKind::kMerged:  // MergeImage, when our own files are there
      return 0;
    case RootEntryKind::kLink:
      return ::symlinkat(entry.target.c_str(), context.root_fd, name) == 0 ? 0 : errno;
    case RootEntryKind::kEmpty:
      return ::mkdirat(context.root_fd, name, 0755) == 0 ? 0 : errno;
    case RootEntryKind::kTree:
      if (::mkdirat(context.root_fd, name, 0755) != 0) return errno;
      break;
    case RootEntryKind::kFile:
      if (MakeMountPointFile(context.root_fd, name) != 0) return errno;
      break;
  }
  const bool directory = entry.kind == RootEntryKind::kTree;
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("image_links")) {
    return AttachAndClose(CloneTree(context.image_fd, name, 0, 0), context.root_fd, name) == 0 ? 0 : errno;
  }
#endif
  // OpenMountPoint refuses what is not of the expected kind, links first of all.
  const UniqueFd shown = OpenMountPoint(context.image_fd, name, directory, false);
  if (!shown) return errno;
  const UniqueFd place = OpenMountPoint(context.root_fd, name, directory, false);
  if (!place) return errno;
  // The clone inherits the attributes of the whole.
  return AttachAt(UniqueFd(CloneTree(shown.get(), "", AT_EMPTY_PATH, 0)), place) == 0 ? 0 : errno;
}

// Shows the directory `name` of `merged` over our own.
int ShowMerged(const SetupContext& context, int merged, const char* name) {
  const UniqueFd shown = OpenMountPoint(merged, name, true, false);
  const UniqueFd place = OpenMountPoint(context.root_fd, name, true, false);
  if (!shown || !place) return errno;
  return AttachAt(UniqueFd(CloneTree(shown.get(), "", AT_EMPTY_PATH, 0)), place) == 0 ? 0 : errno;
}

}  // namespace

int ShowImage(SetupContext& context) {
  if (!context.spec->root) return 0;
  const RootImage& image = *context.spec->root;
  UniqueFd tree(context.image_tree_fd);
  if (!tree) tree = ReopenImage(image);
  if (!tree) return errno;
  struct mount_attr attr {};
  attr.attr_set = CAISSON_LEFT_OUT("read_only_image") ? 0 : kImageTree;
  attr.propagation = MS_PRIVATE;
  if (::mount_setattr(tree.get(), "", AT_EMPTY_PATH, &attr, sizeof(attr)) != 0) return errno;
  // Parts can be taken only from an attached mount.
  if (::move_mount(tree.get(), "", context.root_fd, kPlace, MOVE_MOUNT_F_EMPTY_PATH) != 0) return errno;
  context.image_fd = tree.Release();
  for (const RootEntry& entry : image.entries) {
    if (const int error = ShowEntry(context, entry); error != 0) return error;
  }
  return CoverOtherLoaders(context);
}

// Our own root, as it is now, over the image: names that both have are ours, whatever the image has under them. Only
// parts of the result are shown, the others directly from the image, because each file that is opened through an
// overlay costs every sandbox anew.
int MergeImage(SetupContext& context) {
  if (!context.spec->root) return 0;
  const UniqueFd image(std::exchange(context.image_fd, -1));
  const auto& entries = context.spec->root->entries;
  const auto is_merged = [](const RootEntry& entry) { return entry.kind == RootEntryKind::kMerged; };
  if (std::none_of(entries.begin(), entries.end(), is_merged)) return 0;
  char layers[64];
  ::snprintf(layers, sizeof(layers), "/proc/self/fd/%d:/proc/self/fd/%d", context.root_fd, image.get());
  UniqueFd merged(NewFilesystem("overlay", {{"lowerdir", layers}, {"userxattr", nullptr}}, kImageTree));
  if (!merged || ::move_mount(merged.get(), "", context.root_fd, kPlace, MOVE_MOUNT_F_EMPTY_PATH) != 0) return errno;
  for (const RootEntry& entry : entries) {
    if (!is_merged(entry)) continue;
    if (const int error = ShowMerged(context, merged.get(), entry.name.c_str()); error != 0) return error;
  }
  return 0;
}

}  // namespace caisson::sandbox::steps
