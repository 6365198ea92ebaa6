// Copies a directory tree, for the places where a mount cannot do: a file system that cannot be id-mapped, or a kernel
// whose tmpfs cannot carry an overlay's marks. Allocates nothing, so it can run after clone too.
#pragma once

#include <sys/types.h>

namespace caisson::sandbox {

inline constexpr uid_t kKeepOwner = static_cast<uid_t>(-1);

// Regular files, directories and symbolic links (as links); anything else is left out. What is made belongs to `owner`
// unless that is kKeepOwner. Returns 0, or -1 with errno: ELOOP when nested too deeply, ENOSPC when the target is full.
int CopyTree(int source_dir, int target_dir, uid_t owner);

}  // namespace caisson::sandbox
