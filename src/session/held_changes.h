// The two trees of a session, held still: what changes are computed from, applied and discarded. While it exists,
// nothing runs in the session (a living one is paused by its supervisor) and no other process changes what becomes of
// its changes.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "session/apply.h"
#include "session/client.h"
#include "session/diff.h"
#include "session/directory.h"
#include "session/manifest.h"
#include "session/session_events.h"

namespace caisson::session {

class HeldChanges {
 public:
  // Also undoes or finishes an apply that was interrupted; `recovered()` says so. kConflict: there is nothing to hold.
  static Result<HeldChanges> Hold(const SessionDirectory& directory, const Record& record);

  Result<Diff> Compute() const { return ComputeDiff(project_.get(), tree()); }
  Result<std::string> Patch(const Diff& diff) const { return RenderPatch(project_.get(), tree(), diff); }
  // The journal is this session's; the stamp its record's.
  Result<ApplyReport> ApplyTo(const Diff& diff, const Record& record, ApplyOptions options) const;

  // Gives another session, which is not open yet, the same beginning: the base, where the session has no project, and
  // the layer. kUnsupported for a private copy of a project.
  Status CopyTo(const SessionDirectory& fork, const Record& record) const;

  // In the session's own log, by its supervisor or, when that is gone, by this process.
  Status Note(const SessionDirectory& directory, SessionEventType type, nlohmann::json members);
  // Ends the session where it lives, and writes down what became of it.
  Status SetState(const SessionDirectory& directory, State state, const std::string& digest);
  // Whether commands run in it.
  bool IsBusy();

  const RecoverReport& recovered() const { return recovered_; }

 private:
  SessionTree tree() const { return {tree_.get(), manifest_ ? &*manifest_ : nullptr}; }

  UniqueFd lock_, project_, tree_, journal_;
  std::optional<Manifest> manifest_;
  std::optional<Client> client_;  // holds a living session
  RecoverReport recovered_;
};

}  // namespace caisson::session
