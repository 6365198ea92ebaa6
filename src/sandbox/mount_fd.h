// Small building blocks of the new mount API, for the set-up steps. Runs: child after clone. Each returns a descriptor
// or 0 on success and -1 with errno set on failure.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

namespace caisson::sandbox {

struct FsOption {
  const char* key;
  const char* value;  // nullptr for a flag
};

// A new file system as a detached mount with the given MOUNT_ATTR_* flags.
int NewFilesystem(const char* type, std::initializer_list<FsOption> options, unsigned attributes);

// Changes options of the file system that a mount shows, for all who see it.
int ChangeFilesystem(int mount_fd, std::initializer_list<FsOption> options);

// A detached copy of the mount tree at `path` with `attributes` set on all of it; 0 keeps those of the original.
int CloneTree(int dir_fd, const char* path, unsigned flags, unsigned attributes);

// Attaches a detached mount at `target` (relative to `root_fd`) and closes it.
int AttachAndClose(int mount_fd, int root_fd, const char* target);

// Makes `path` and its parents below `dir_fd`; existing directories are fine.
int MakeDirectories(int dir_fd, const char* path, mode_t mode);

// Writes a whole small file.
int WriteFileAt(int dir_fd, const char* path, const char* bytes, size_t size, mode_t mode);

// An empty file to mount a file on.
int MakeMountPointFile(int dir_fd, const char* path);

}  // namespace caisson::sandbox
