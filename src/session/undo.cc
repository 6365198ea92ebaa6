#include "session/undo.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "session/record.h"

namespace caisson::session {

namespace {

// True if the tree has an entry that appeared or changed at or after `since_ns`.
Result<bool> HasNewer(int directory_fd, const std::string& name, int64_t since_ns, Budget& budget, int depth) {
  CAISSON_TRY_VOID(budget.Depth(depth, name));
  CAISSON_TRY(const UniqueFd directory, OpenBelow(directory_fd, name, O_RDONLY | O_DIRECTORY));
  CAISSON_TRY(const std::vector<std::string> names, ReadNames(directory.get(), "", budget));
  for (const std::string& below : names) {
    CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(directory.get(), below));
    if (!stat || stat->ctime_ns > since_ns) return true;
    if (stat->type != EntryType::kDirectory) continue;
    CAISSON_TRY(const bool newer, HasNewer(directory.get(), below, since_ns, budget, depth + 1));
    if (newer) return true;
  }
  return false;
}

Result<bool> UndoStep(int project_fd, int staging_fd, const Journal& journal, const ApplyStep& step) {
  if (step.kind == ApplyStep::Kind::kMode) {
    CAISSON_TRY_VOID(ChangeMode(project_fd, step.path, step.prepared, step.new_mode, step.old_mode));
    return true;
  }
  const std::string slot = std::to_string(step.slot), name(NameOf(step.path));
  CAISSON_TRY(const std::optional<EntryStat> staged, StatAt(staging_fd, slot));
  const bool staged_is_it = staged && Identity::Of(*staged) == step.prepared;
  if (step.kind == ApplyStep::Kind::kRemove) {
    if (!staged) return true;  // never moved, or already back. Whatever is in this slot came from the host
    Result<UniqueFd> parent = OpenParent(project_fd, step.path);
    return parent && Rename(staging_fd, slot, parent->get(), name, RENAME_NOREPLACE).has_value();
  }
  if (staged_is_it) return true;
  Result<UniqueFd> parent = OpenParent(project_fd, step.path);
  if (!parent) return false;
  CAISSON_TRY(const std::optional<EntryStat> placed, StatAt(parent->get(), name));
  if (!placed || Identity::Of(*placed) != step.prepared) return false;  // the host has replaced or edited it since
  if (placed->type == EntryType::kDirectory) {
    DiffLimits limits;
    Budget budget(limits);
    const Result<bool> newer = HasNewer(parent->get(), name, journal.swapped_from_ns, budget, 0);
    if (!newer || *newer) return false;
    // Moving a directory needs the right to write to it.
    ::fchmodat(parent->get(), name.c_str(), placed->mode | 0700, 0);
  }
  const unsigned flags = step.kind == ApplyStep::Kind::kReplace ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  return Rename(parent->get(), name, staging_fd, slot, flags).has_value();
}

Status RemoveBelow(int directory_fd, const std::string& name, int depth) {
  if (depth > 2 * DiffLimits().depth) return Error::Exhausted("the staging directory is nested too deeply");
  if (::unlinkat(directory_fd, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return Error::System(errno, "remove a staged entry");
  if (::unlinkat(directory_fd, name.c_str(), AT_REMOVEDIR) == 0) return {};
  ::fchmodat(directory_fd, name.c_str(), 0700, 0);  // a directory, as unlinkat has told
  CAISSON_TRY(const UniqueFd directory, OpenBelow(directory_fd, name, O_RDONLY | O_DIRECTORY));
  DiffLimits limits;
  Budget budget(limits);
  CAISSON_TRY(const std::vector<std::string> names, ReadNames(directory.get(), "", budget));
  for (const std::string& below : names) CAISSON_TRY_VOID(RemoveBelow(directory.get(), below, depth + 1));
  if (::unlinkat(directory_fd, name.c_str(), AT_REMOVEDIR) != 0)
    return Error::System(errno, "remove a staged directory");
  return {};
}

}  // namespace

Status Rename(int from_dir, const std::string& from, int to_dir, const std::string& to, unsigned flags) {
  if (::renameat2(from_dir, from.c_str(), to_dir, to.c_str(), flags) == 0) return {};
  return Error::System(errno, "rename " + QuotedPath(from) + " to " + QuotedPath(to));
}

Result<bool> ChangeMode(int project_fd, const std::string& path, const Identity& identity, mode_t from, mode_t to) {
  Result<UniqueFd> entry = OpenBelow(project_fd, path, O_PATH);
  if (!entry) return false;
  CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(entry->get(), ""));
  if (!stat || Identity::Of(*stat) != identity || stat->mode != from) return false;
  // The descriptor names the judged entry, whatever its path is now.
  const std::string name = "/proc/self/fd/" + std::to_string(entry->get());
  if (::chmod(name.c_str(), to) != 0) return Error::System(errno, "change the mode of " + QuotedPath(path));
  return true;
}

Result<std::vector<std::string>> UndoSteps(int project_fd, const Journal& journal) {
  std::vector<std::string> left;
  Result<UniqueFd> staging = OpenBelow(project_fd, journal.staging, O_RDONLY | O_DIRECTORY);
  if (!staging && staging.error().errno_value == ENOENT && journal.steps.empty()) return left;
  if (!staging) return std::move(staging).error().In("the staging directory of an unfinished apply");
  for (auto step = journal.steps.rbegin(); step != journal.steps.rend(); ++step) {
    CAISSON_TRY(const bool undone, UndoStep(project_fd, staging->get(), journal, *step));
    if (!undone) left.push_back(step->path);
  }
  if (::syncfs(staging->get()) != 0) return Error::System(errno, "flush the project's file system");
  return left;
}

Result<Manifest> ReadApplied(int journal_fd) {
  Result<Manifest> applied = ReadManifest(journal_fd, kAppliedName);
  if (!applied && applied.error().errno_value == ENOENT) return Manifest();
  return applied;
}

Status RememberRestored(int project_fd, int journal_fd, const Journal& journal,
                        const std::vector<std::string>& except) {
  CAISSON_TRY(Manifest applied, ReadApplied(journal_fd));
  for (const ApplyStep& step : journal.steps) {
    if (step.host.inode == 0 || std::find(except.begin(), except.end(), step.path) != except.end()) continue;
    Result<UniqueFd> parent = OpenParent(project_fd, step.path);
    if (!parent) continue;
    CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(parent->get(), std::string(NameOf(step.path))));
    if (!stat || Identity::Of(*stat) != step.host) continue;
    applied.entries[step.path] = {stat->type, stat->mode, stat->size, stat->inode, stat->ctime_ns};
  }
  return ReplaceFile(journal_fd, kAppliedName, ManifestToText(applied));
}

Status RemoveStaging(int project_fd, const std::string& name) {
  CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(project_fd, name));
  if (!stat) return {};
  if (stat->type != EntryType::kDirectory) return Error::Conflict(name + " is not a directory");
  return RemoveBelow(project_fd, name, 0);
}

}  // namespace caisson::session
