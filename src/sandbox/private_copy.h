// Copies a directory tree where a mount is impossible: on a file system that cannot be id-mapped, or on a kernel whose
// tmpfs lacks the extended attributes of overlays. Allocates nothing, so it can run after clone too.
#pragma once

#include <sys/types.h>

namespace caisson::sandbox {

inline constexpr uid_t kKeepOwner = static_cast<uid_t>(-1);

// Copies regular files, directories and symbolic links (as links) and skips everything else. The copies belong to
// `owner` unless that is kKeepOwner. Returns 0, or -1 with errno: ELOOP when nested too deeply, ENOSPC when the target
// is full.
int CopyTree(int source_dir, int target_dir, uid_t owner);

}  // namespace caisson::sandbox
