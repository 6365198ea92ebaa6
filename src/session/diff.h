// What a session changed in its project.
//
// The session's tree is either the upper directory of an overlay or a private copy with its manifest. The caller makes
// sure that nothing runs in the session: ended, or paused until the call returns. The host's tree may change at any
// time.
//
// SECURITY: the trees are hostile. No link is followed, no file other than a regular one is opened for reading, nothing
// found in a tree is executed, and every loop is bounded by DiffLimits.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "session/change.h"
#include "session/limits.h"
#include "session/manifest.h"

namespace caisson::session {

struct SessionTree {
  int fd = -1;  // a directory, not owned: the overlay's upper directory, or the copy; O_PATH suffices
  // Of a copy. nullptr: `fd` is the upper directory of an overlay mounted with userxattr.
  const Manifest* manifest = nullptr;
};

// `project_fd` is the host's project directory: the overlay's lower one, or what the copy was made from.
Result<Diff> ComputeDiff(int project_fd, const SessionTree& tree, const DiffLimits& limits = {});

// The changes as a unified patch that `git apply` takes, read anew from both trees. Binary files are named ("Binary
// files … differ"). What a patch cannot express (directories, modes other than the executable bit, refused changes) is
// written in lines that begin with "caisson: ", which git skips.
Result<std::string> RenderPatch(int project_fd, const SessionTree& tree, const Diff& diff,
                                const PatchLimits& limits = {});

}  // namespace caisson::session
