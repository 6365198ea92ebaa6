// Small building blocks of the new mount API, for the set-up steps. Runs: child after clone. Each function returns a
// descriptor or 0 on success and -1 with errno set on failure.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>
#include <string_view>

#include "base/unique_fd.h"

namespace caisson::sandbox {

struct FsOption {
  const char* key;
  const char* value;  // nullptr for a flag
};

// Creates a file system as a detached mount with the given MOUNT_ATTR_* flags.
int NewFilesystem(const char* type, std::initializer_list<FsOption> options, unsigned attributes);

// Changes options of the file system behind a mount, for every mount of that file system.
int ChangeFilesystem(int mount_fd, std::initializer_list<FsOption> options);

// Returns a detached copy of the mount tree at `path` with `attributes` set on all of it; 0 keeps the original
// attributes.
int CloneTree(int dir_fd, const char* path, unsigned flags, unsigned attributes);

// SECURITY: the author of a source tree controls every name in it, so each can be a symbolic link, and while the host's
// tree is still reachable such a link leads there. The functions from here to AttachAt look a path up without following
// any link, never above `dir_fd`, and return what they found as a descriptor: no path is looked up a second time. Each
// returns an invalid descriptor with errno on failure, ELOOP where the path leads through a link.

// Opens `path`, which is relative, with O_NOFOLLOW | O_CLOEXEC. O_PATH neither blocks on a pipe nor wakes a device.
UniqueFd OpenBeneath(int dir_fd, const char* path, int flags);

// Opens the directory `path`; creates it and its parents where they are missing.
UniqueFd MakeDirectories(int dir_fd, std::string_view path);

// Opens `path` as the mount point for a directory or a regular file. Creates a missing one if `may_make` is true, else
// fails with ENOENT. Accepts only a directory or a regular file: ENOTDIR where a directory is needed, EISDIR where a
// file is needed, ENOTSUP for pipes, sockets and devices.
UniqueFd OpenMountPoint(int dir_fd, const char* path, bool directory, bool may_make);

// Attaches a detached mount on top of `place`.
int AttachAt(UniqueFd mount, const UniqueFd& place);

// The remaining functions are for paths that Caisson itself chose, in directories that it made.

// Attaches a detached mount at `target` (relative to `root_fd`) and closes it.
int AttachAndClose(int mount_fd, int root_fd, const char* target);

// Writes a whole small file.
int WriteFileAt(int dir_fd, const char* path, const char* bytes, size_t size, mode_t mode);

// Creates an empty file to mount a file on.
int MakeMountPointFile(int dir_fd, const char* path);

}  // namespace caisson::sandbox
