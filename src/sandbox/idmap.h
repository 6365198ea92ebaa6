// Id-mapped mounts: show a tree as if `owner` were the sandbox's user, so that the workload can read what `owner` can
// read, without a copy and without changing anything on disk. Needs root.
#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

// Returns a detached clone of the tree at `source` in which files of `owner`, and of no other user, belong to
// `shown_as`. kUnsupported when the file system cannot do it.
Result<UniqueFd> CloneWithOwner(int source, Owner owner, Owner shown_as);

}  // namespace caisson::sandbox
