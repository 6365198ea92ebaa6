// Id-mapped mounts: shows a tree as if its owner were the sandbox's user, so that what its owner can read the workload
// can read too, without a copy and without changing anything on disk. Needs root.
#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::sandbox {

// A detached clone of the tree at `source` in which files of its owner belong to `uid` and `gid`.
// kUnsupported when the file system cannot do it.
Result<UniqueFd> CloneWithOwner(int source, uid_t uid, gid_t gid);

}  // namespace caisson::sandbox
