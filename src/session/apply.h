// Brings the changes of a session into the project: all of the selected ones, or none.
//
//   1. prepare  every new file, link and directory is written into a staging directory in the project's root
//               (.caisson-apply-TOKEN), its bytes compared with the diff's digest; a full disk ends it here
//   2. judge    every host entry is compared with the diff and the stamp; one conflict ends it, nothing has changed
//   3. swap     entries are exchanged with the prepared ones, one rename each; what came out is compared with what was
//               judged, and swapped back if it is something else
//   4. commit   the list of what was written is stored, then the journal says that the changes stay
//   5. clean up the staging directory with the host's old entries is removed; a failure is only noted
//
// The journal is written before the first swap and names every step, so that RecoverApply can undo what a killed
// process left half done. docs/design/session-diff.md lists the cases.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/change.h"
#include "session/diff.h"
#include "session/limits.h"
#include "session/stamp.h"

namespace caisson::session {

enum class ApplyPhase : uint8_t { kPrepare, kJudge, kSwap, kCommit, kCleanUp };

struct ApplyOptions {
  // Paths or globs (`*` and `?` within a name, `**` across names) relative to the project; empty: everything. A
  // directory selects what is below it. New directories that a selected change needs are selected too.
  std::vector<std::string> only;
  Stamp stamp;  // of the session's beginning
  // A directory of the session's own that the session cannot reach; holds the journal, the lock and the list of what
  // earlier calls applied (those entries are not taken for the host's changes).
  int journal_fd = -1;
  bool allow_leaving_links = false;  // apply links that lead out of the project
  bool overwrite_changed = false;    // apply over entries that the host changed since the stamp
  // Called before each step; may be empty. For showing progress.
  std::function<void(ApplyPhase phase, const std::string& path)> progress;
};

struct ApplyConflict {
  std::string path;
  std::string reason;  // for people: "the host changed it after the session began"
};

struct RefusedChange {
  std::string path;
  Refusal reason = Refusal::kNone;
};

// What could not be removed after the changes were in place. The journal stays, so RecoverApply tries again; until it
// has succeeded, Apply refuses to begin.
struct ApplyLeftover {
  std::string staging;  // the directory in the project's root that still holds the host's old entries
  std::string reason;   // for people
};

struct ApplyReport {
  bool applied = false;                // false: there are conflicts, and the project is as it was
  std::vector<std::string> paths;      // applied, in the diff's order
  std::vector<RefusedChange> refused;  // selected, but never applied
  std::vector<ApplyConflict> conflicts;
  std::optional<ApplyLeftover> leftover;  // only where `applied`
};

// An error means that the project is as it was, unless its message says that something could not be put back; then the
// journal stays and RecoverApply tries again. The error kConflict: another call is using the journal, or an unfinished
// apply must be recovered first. `diff` must be ComputeDiff's of the same trees; nothing may run in the session.
Result<ApplyReport> Apply(int project_fd, const SessionTree& tree, const Diff& diff, const ApplyOptions& options);

struct RecoverReport {
  enum class Outcome : uint8_t {
    kNothing,   // no apply was interrupted
    kUndone,    // the project is as it was before the interrupted apply
    kFinished,  // the interrupted apply had committed; its leftovers are removed
    kPartly,    // some entries were changed by the host since and were left alone: `left`
  };
  Outcome outcome = Outcome::kNothing;
  // Paths that were not put back, and the name in the project's root of the directory that keeps the host's old
  // entries.
  std::vector<std::string> left;
  std::string staging;
};

// Call it before any other use of a session's journal directory. Idempotent: it may itself be killed and repeated.
Result<RecoverReport> RecoverApply(int project_fd, int journal_fd);

}  // namespace caisson::session
