// Undoing the steps of a journal, for an apply that failed and for one that was killed.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "session/journal.h"
#include "session/manifest.h"

namespace caisson::session {

// Undoes, last first, every step that was done. Returns the paths that were left alone because the host has changed
// them since. Repeating it is harmless.
Result<std::vector<std::string>> UndoSteps(int project_fd, const Journal& journal);

// Records in the list of applied entries those that an undone journal's steps put back as they were: renaming changed
// their ctimes, which a later call must not take for the host's doing. `except` are left out.
Status RememberRestored(int project_fd, int journal_fd, const Journal& journal, const std::vector<std::string>& except);

// What calls of Apply wrote, in the form of a manifest.
inline constexpr char kAppliedName[] = "applied";
Result<Manifest> ReadApplied(int journal_fd);

// Removes a directory of the project's root that Apply made, with everything in it. None is no error.
Status RemoveStaging(int project_fd, const std::string& name);

// Changes the mode of the entry if it still is what `identity` says; false if it is not.
Result<bool> ChangeMode(int project_fd, const std::string& path, const Identity& identity, mode_t from, mode_t to);

Status Rename(int from_dir, const std::string& from, int to_dir, const std::string& to, unsigned flags);

}  // namespace caisson::session
