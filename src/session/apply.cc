#include "session/apply.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/mutation.h"
#include "linux/files.h"
#include "session/journal.h"
#include "session/manifest.h"
#include "session/plan.h"
#include "session/record.h"
#include "session/tree.h"
#include "session/undo.h"
#include "verify/digest.h"

namespace caisson::session {

namespace {

constexpr char kLockName[] = "apply.lock";
constexpr size_t kMaxJournalBytes = size_t{1} << 30;

Result<UniqueFd> Lock(int journal_fd) {
  UniqueFd lock(::openat(journal_fd, kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) return Error::System(errno, "open the lock of the session's journal");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Error::Conflict("another command applies this session just now");
  return lock;
}

Result<std::string> NewStagingName() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return Error::System(errno, "get random bytes");
  std::string name = kStagingPrefix;
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

mode_t HostMode(const EntryStat& stat) { return stat.type == EntryType::kDirectory ? stat.mode & 01777 : stat.mode; }

class Application {
 public:
  Application(int project_fd, const SessionTree& tree, const ApplyOptions& options, ApplyPlan plan)
      : project_fd_(project_fd), tree_(tree), options_(options), plan_(std::move(plan)), budget_(DiffLimits()) {}

  Result<ApplyReport> Run() {
    CAISSON_TRY_VOID(Begin());
    Status done = Prepare();
    if (done) done = Judge();
    if (done && report_.conflicts.empty()) done = Swap();
    if (done && report_.conflicts.empty()) {
      CAISSON_TRY_VOID(Commit());
      return std::move(report_);
    }
    CAISSON_TRY_VOID(RollBack());
    if (!done) return std::move(done).error().In("nothing was changed");
    return std::move(report_);
  }

 private:
  void Progress(ApplyPhase phase, const std::string& path) const {
    if (options_.progress) options_.progress(phase, path);
  }
  void AddConflict(const std::string& path, std::string reason) {
    report_.conflicts.push_back({path, std::move(reason)});
  }

  Status Begin() {
    report_.refused = plan_.refused;
    CAISSON_TRY(const std::optional<EntryStat> project, StatAt(project_fd_, ""));
    if (!project) return Error::NotFound("the project's directory is gone");
    journal_.project_device = project->device;
    journal_.project_inode = project->inode;
    CAISSON_TRY(journal_.staging, NewStagingName());
    CAISSON_TRY(earlier_, ReadApplied(options_.journal_fd));
    // The journal first: a staging directory without one would stay for ever.
    CAISSON_TRY_VOID(ReplaceFile(options_.journal_fd, kJournalName, JournalToText(journal_)));
    if (::mkdirat(project_fd_, journal_.staging.c_str(), 0700) != 0) {
      const int error = errno;
      ::unlinkat(options_.journal_fd, kJournalName, 0);
      return Error::System(error, "make a directory in the project");
    }
    CAISSON_TRY(staging_, OpenBelow(project_fd_, journal_.staging, O_RDONLY | O_DIRECTORY));
    return {};
  }

  // --- prepare ---

  Status Prepare() {
    for (const PreparedEntry& entry : plan_.prepared) {
      Progress(ApplyPhase::kPrepare, entry.change->path);
      CAISSON_TRY_VOID(PrepareEntry(entry));
    }
    // The modes of directories come last: one may forbid writing.
    for (auto entry = plan_.prepared.rbegin(); entry != plan_.prepared.rend(); ++entry) {
      if (entry->change->after.type != EntryType::kDirectory) continue;
      const bool moved =
          entry->place.find('/') == std::string::npos;  // moving a directory needs the right to write to it
      const mode_t mode = entry->change->after.mode | (moved ? 0700 : 0) | inherited_[entry->place];
      if (::fchmodat(staging_.get(), entry->place.c_str(), mode, 0) != 0) {
        return Error::System(errno, "set the mode of " + QuotedPath(entry->change->path));
      }
    }
    if (::syncfs(staging_.get()) != 0) return Error::System(errno, "flush the project's file system");
    CAISSON_TRY(const Stamp now, TakeStamp(staging_.get()));
    journal_.swapped_from_ns = now.ctime_ns;
    return {};
  }

  Status PrepareEntry(const PreparedEntry& entry) {
    const Change& change = *entry.change;
    // The parent's owner and group, as if it were made in its place; a replaced file keeps its own.
    uid_t uid = 0;
    gid_t gid = 0;
    mode_t inherited = 0;
    CAISSON_TRY_VOID(OwnerFor(entry, uid, gid, inherited));
    const char* place = entry.place.c_str();
    if (change.after.type == EntryType::kDirectory) {
      if (::mkdirat(staging_.get(), place, 0700) != 0) return Error::System(errno, "make " + QuotedPath(change.path));
      inherited_[entry.place] = inherited;
    } else if (change.after.type == EntryType::kLink) {
      if (::symlinkat(change.after.link_target.c_str(), staging_.get(), place) != 0) {
        return Error::System(errno, "make the link " + QuotedPath(change.path));
      }
    } else {
      CAISSON_TRY_VOID(PrepareFile(entry, uid, gid));
      return {};
    }
    const int owned =
        ::fchownat(staging_.get(), place, ::geteuid() == 0 ? uid : static_cast<uid_t>(-1), gid, AT_SYMLINK_NOFOLLOW);
    if (owned != 0 && ::geteuid() == 0) return Error::System(errno, "set the owner of " + QuotedPath(change.path));
    return {};
  }

  Status OwnerFor(const PreparedEntry& entry, uid_t& uid, gid_t& gid, mode_t& inherited) {
    std::optional<EntryStat> model;
    if (entry.place.find('/') != std::string::npos) {
      CAISSON_TRY(model, StatAt(staging_.get(), std::string(ParentOf(entry.place))));
      inherited = inherited_[std::string(ParentOf(entry.place))];
    } else {
      Result<UniqueFd> parent = OpenParent(project_fd_, entry.change->path);
      if (!parent) return {};  // Judge finds and names it
      CAISSON_TRY(model, StatAt(parent->get(), ""));
      inherited = model ? model->mode & 02000 : 0;
      if (entry.change->before.type == EntryType::kFile) {
        CAISSON_TRY(const std::optional<EntryStat> replaced,
                    StatAt(parent->get(), std::string(NameOf(entry.change->path))));
        if (replaced) model = replaced;
      }
    }
    if (model) {
      uid = model->uid;
      gid = inherited != 0 || ::geteuid() == 0 || entry.change->before.type == EntryType::kFile
                ? model->gid
                : static_cast<gid_t>(-1);
    }
    return {};
  }

  Status PrepareFile(const PreparedEntry& entry, uid_t uid, gid_t gid) {
    const Change& change = *entry.change;
    CAISSON_TRY(const UniqueFd from, OpenBelow(tree_.fd, change.path, O_RDONLY));
    UniqueFd to(
        ::openat(staging_.get(), entry.place.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!to) return Error::System(errno, "create " + QuotedPath(change.path));
    constexpr size_t kChunk = 1 << 18;
    const auto chunk = std::make_unique<char[]>(kChunk);
    verify::Sha256Stream hash;
    int64_t bytes = 0;
    for (;;) {
      const ssize_t count = ::read(from.get(), chunk.get(), kChunk);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Error::System(errno, "read " + QuotedPath(change.path));
      if (count == 0) break;
      bytes += count;
      if (bytes > change.after.size) break;
      hash.Add({chunk.get(), static_cast<size_t>(count)});
      Status written = linux_sys::WriteAll(to.get(), {chunk.get(), static_cast<size_t>(count)});
      if (!written) return std::move(written).error().In(QuotedPath(change.path));
    }
    // SECURITY: what is applied is what the diff, and so an approval of its digest, said.
    if (bytes != change.after.size || hash.FinishHex() != change.after.sha256) {
      return Error::Conflict(QuotedPath(change.path) +
                             " changed in the session after the diff was made; make a new one");
    }
    const int owned = ::fchown(to.get(), ::geteuid() == 0 ? uid : static_cast<uid_t>(-1), gid);
    if (owned != 0 && ::geteuid() == 0) return Error::System(errno, "set the owner of " + QuotedPath(change.path));
    if (change.before.type == EntryType::kFile) CAISSON_TRY_VOID(KeepAttributes(change, to.get()));
    if (::fchmod(to.get(), change.after.mode & 01777) != 0)
      return Error::System(errno, "set the mode of " + QuotedPath(change.path));
    return {};
  }

  // The host's own attributes and ACL stay with the name. Capabilities do not: they were given to other bytes.
  Status KeepAttributes(const Change& change, int to_fd) {
    Result<UniqueFd> replaced = OpenBelow(project_fd_, change.path, O_RDONLY);
    if (!replaced) return {};
    CAISSON_TRY(const Attributes attributes, ReadAttributes(replaced->get()));
    for (const auto& [name, value] : attributes) {
      if (name == "security.capability") continue;
      if (::fsetxattr(to_fd, name.c_str(), value.data(), value.size(), 0) != 0) {
        return Error::System(errno, "keep the attribute " + QuotedPath(name) + " of " + QuotedPath(change.path));
      }
    }
    return {};
  }

  // --- judge ---

  Status Judge() {
    for (PlannedStep& planned : plan_.steps) {
      Progress(ApplyPhase::kJudge, planned.step.path);
      CAISSON_TRY_VOID(JudgeStep(planned));
    }
    return {};
  }

  Status JudgeStep(PlannedStep& planned) {
    const Change& change = *planned.change;
    const std::string name(NameOf(change.path));
    Result<UniqueFd> parent = OpenParent(project_fd_, change.path);
    if (!parent) {
      AddConflict(change.path, "its directory cannot be reached on the host: " + parent.error().message);
      return {};
    }
    CAISSON_TRY(const std::optional<EntryStat> host, StatAt(parent->get(), name));
    if (planned.step.kind == ApplyStep::Kind::kAdd) {
      if (host) AddConflict(change.path, "the host has made an entry of this name");
      if (change.host_removed && !options_.overwrite_changed) AddConflict(change.path, "the host has removed it");
    } else if (!host) {
      AddConflict(change.path, "the host has removed it");
      return {};
    } else {
      CAISSON_TRY(const std::string fault, FaultOfHost(parent->get(), name, change, planned.step.kind, *host));
      if (!fault.empty()) AddConflict(change.path, fault);
      planned.judged = *host;
      // Without an identity, undoing the step does not make the host's later changes look like ours: with
      // overwrite_changed the next call must find them again.
      if (!ChangedByHost(change.path, *host)) planned.step.host = Identity::Of(*host);
    }
    if (planned.step.kind == ApplyStep::Kind::kAdd || planned.step.kind == ApplyStep::Kind::kReplace) {
      CAISSON_TRY(const std::optional<EntryStat> staged, StatAt(staging_.get(), std::to_string(planned.step.slot)));
      if (!staged) return Error::Conflict("the staging directory was changed");
      planned.step.prepared = Identity::Of(*staged);
      planned.step.old_mode = staged->mode;
    } else {
      planned.step.prepared = Identity::Of(planned.judged);
      planned.step.old_mode = planned.judged.mode;
      planned.step.new_mode = (change.after.mode & 01777) |
                              (planned.judged.mode & (change.after.type == EntryType::kDirectory ? 06000 : 0));
    }
    return {};
  }

  Result<std::string> FaultOfHost(int parent_fd, const std::string& name, const Change& change, ApplyStep::Kind kind,
                                  const EntryStat& host) {
    if (host.type != change.before.type ||
        HostMode(host) != (host.type == EntryType::kLink ? host.mode : change.before.mode) ||
        (host.type == EntryType::kFile && host.size != change.before.size)) {
      return std::string("the host changed it after the diff was made");
    }
    if (host.type == EntryType::kLink) {
      CAISSON_TRY(const std::string target, ReadLink(parent_fd, name));
      if (target != change.before.link_target) return std::string("the host changed it after the diff was made");
    }
    if (host.immutable) return std::string("the host's entry is immutable or append-only (chattr)");
    if (host.mount_root) return std::string("something is mounted there");
    // The entries of a directory that goes are judged one by one; its own ctime changes with each of them.
    const bool entries_judged = host.type == EntryType::kDirectory && kind != ApplyStep::Kind::kMode;
    if (entries_judged || options_.overwrite_changed || !ChangedByHost(change.path, host)) return std::string();
    return std::string("the host changed it after the session began");
  }

  bool ChangedByHost(const std::string& path, const EntryStat& host) const {
    if (CAISSON_LEFT_OUT("host_drift") || host.ctime_ns < options_.stamp.ctime_ns) return false;
    const auto ours = earlier_.entries.find(path);
    return ours == earlier_.entries.end() || ours->second.inode != host.inode || ours->second.ctime_ns != host.ctime_ns;
  }

  // --- swap ---

  Status Swap() {
    journal_.state = Journal::State::kSwapping;
    std::vector<ApplyStep> modes;
    for (const PlannedStep& planned : plan_.steps) {
      journal_.steps.push_back(planned.step);
      const bool placed = planned.step.kind == ApplyStep::Kind::kAdd || planned.step.kind == ApplyStep::Kind::kReplace;
      const mode_t wanted = planned.change->after.mode | (planned.step.old_mode & 02000);
      if (!placed || planned.change->after.type != EntryType::kDirectory || planned.step.old_mode == wanted) continue;
      ApplyStep mode = planned.step;  // the write permission that moving it needed is taken away last
      mode.kind = ApplyStep::Kind::kMode;
      mode.host = {};
      mode.new_mode = wanted;
      modes.push_back(std::move(mode));
    }
    journal_.steps.insert(journal_.steps.end(), modes.begin(), modes.end());
    CAISSON_TRY_VOID(ReplaceFile(options_.journal_fd, kJournalName, JournalToText(journal_)));
    for (const PlannedStep& planned : plan_.steps) {
      Progress(ApplyPhase::kSwap, planned.step.path);
      CAISSON_TRY_VOID(SwapStep(planned));
      if (!report_.conflicts.empty()) return {};
    }
    for (const ApplyStep& mode : modes) {
      Progress(ApplyPhase::kSwap, mode.path);
      CAISSON_TRY(const bool changed, ChangeMode(project_fd_, mode.path, mode.prepared, mode.old_mode, mode.new_mode));
      if (!changed) AddConflict(mode.path, "the host changed it during the apply");
    }
    return {};
  }

  Status SwapStep(const PlannedStep& planned) {
    const ApplyStep& step = planned.step;
    const std::string slot = std::to_string(step.slot), name(NameOf(step.path));
    if (step.kind == ApplyStep::Kind::kMode) {
      CAISSON_TRY(const bool changed, ChangeMode(project_fd_, step.path, step.prepared, step.old_mode, step.new_mode));
      if (!changed) AddConflict(step.path, "the host changed it during the apply");
      return {};
    }
    Result<UniqueFd> parent = OpenParent(project_fd_, step.path);
    if (!parent) {
      AddConflict(step.path, "its directory cannot be reached on the host any more: " + parent.error().message);
      return {};
    }
    Status renamed =
        step.kind == ApplyStep::Kind::kReplace ? Rename(staging_.get(), slot, parent->get(), name, RENAME_EXCHANGE)
        : step.kind == ApplyStep::Kind::kAdd   ? Rename(staging_.get(), slot, parent->get(), name, RENAME_NOREPLACE)
                                               : Rename(parent->get(), name, staging_.get(), slot, RENAME_NOREPLACE);
    if (!renamed) {
      const int error = renamed.error().errno_value;
      if (error != EEXIST && error != ENOENT) return std::move(renamed).error().In(QuotedPath(step.path));
      AddConflict(step.path, error == EEXIST ? "the host has made an entry of this name" : "the host has removed it");
      return {};
    }
    if (step.kind == ApplyStep::Kind::kAdd) return {};
    CAISSON_TRY(const bool expected, IsWhatWasJudged(slot, planned));
    if (!expected) AddConflict(step.path, "the host changed it during the apply");
    return {};
  }

  // What came out of the host's tree. The rename itself changes its ctime, so the other facts and the bytes are
  // compared.
  Result<bool> IsWhatWasJudged(const std::string& slot, const PlannedStep& planned) {
    CAISSON_TRY(const std::optional<EntryStat> out, StatAt(staging_.get(), slot));
    if (!out || out->type != planned.judged.type || out->mode != planned.judged.mode ||
        Identity::Of(*out) != Identity::Of(planned.judged)) {
      return false;
    }
    if (out->type == EntryType::kDirectory) {
      CAISSON_TRY(const UniqueFd directory, OpenBelow(staging_.get(), slot, O_RDONLY | O_DIRECTORY));
      CAISSON_TRY(const std::vector<std::string> names, ReadNames(directory.get(), "", budget_));
      return names.empty();  // everything that the diff knew of was moved away before
    }
    if (out->type != EntryType::kFile || planned.change->before.sha256.empty()) return true;
    CAISSON_TRY(const UniqueFd file, OpenBelow(staging_.get(), slot, O_RDONLY));
    CAISSON_TRY(const std::optional<FileDigest> digest, HashFile(file.get(), budget_));
    return digest && digest->sha256 == planned.change->before.sha256;
  }

  // --- end ---

  // The list of what was written comes before the commit: when it cannot be written, the swaps can still be undone. An
  // apply that is undone leaves entries in the list that describe nothing on the host, which is harmless.
  Status Commit() {
    Progress(ApplyPhase::kCommit, "");
    Status done =
        ::syncfs(staging_.get()) == 0 ? Status() : Status(Error::System(errno, "flush the project's file system"));
    if (done) done = Remember();
    Journal committed = journal_;
    committed.state = Journal::State::kCommitted;
    committed.steps.clear();
    if (done) {
      Progress(ApplyPhase::kCommit, kJournalName);
      done = ReplaceFile(options_.journal_fd, kJournalName, JournalToText(committed));
    }
    if (!done) {
      CAISSON_TRY_VOID(RollBack());
      return std::move(done).error().In("nothing was changed");
    }
    // From here on the changes stay, whatever happens.
    for (const Change* change : plan_.changes) report_.paths.push_back(change->path);
    report_.applied = true;
    Progress(ApplyPhase::kCleanUp, "");
    if (Status cleaned = CleanUp(); !cleaned) report_.leftover = {journal_.staging, cleaned.error().message};
    return {};
  }

  // Later calls must not take what this one wrote for the host's changes. What the host has already edited again is
  // left out.
  Status Remember() {
    std::unordered_map<std::string_view, const ApplyStep*> steps;
    for (const PlannedStep& planned : plan_.steps) steps[planned.step.path] = &planned.step;
    for (const Change* change : plan_.changes) {
      earlier_.entries.erase(change->path);
      if (change->after.type == EntryType::kAbsent) continue;
      Result<UniqueFd> parent = OpenParent(project_fd_, change->path);
      if (!parent) continue;
      CAISSON_TRY(const std::optional<EntryStat> stat, StatAt(parent->get(), std::string(NameOf(change->path))));
      if (!stat) continue;
      const auto step = steps.find(change->path);  // none: it came with its new directory, untouched by the swap
      const bool ours = step != steps.end() ? Identity::Of(*stat) == step->second->prepared
                                            : stat->ctime_ns <= journal_.swapped_from_ns;
      if (ours) earlier_.entries[change->path] = {stat->type, stat->mode, stat->size, stat->inode, stat->ctime_ns};
    }
    return ReplaceFile(options_.journal_fd, kAppliedName, ManifestToText(earlier_));
  }

  Status RollBack() {
    if (journal_.state == Journal::State::kSwapping) {
      CAISSON_TRY(const std::vector<std::string> left, UndoSteps(project_fd_, journal_));
      if (!left.empty()) {
        return Error::Conflict(
            "could not be put back, because the host changed it meanwhile: " + QuotedPath(left.front()) +
            (left.size() > 1 ? " and " + std::to_string(left.size() - 1) + " more" : "") + "; the old entries are in " +
            journal_.staging + " in the project");
      }
      std::vector<std::string> changed;
      for (const ApplyConflict& conflict : report_.conflicts) changed.push_back(conflict.path);
      CAISSON_TRY_VOID(RememberRestored(project_fd_, options_.journal_fd, journal_, changed));
      Journal undone = journal_;
      undone.state = Journal::State::kUndone;
      undone.steps.clear();
      CAISSON_TRY_VOID(ReplaceFile(options_.journal_fd, kJournalName, JournalToText(undone)));
    }
    return CleanUp();
  }

  Status CleanUp() {
    CAISSON_TRY_VOID(RemoveStaging(project_fd_, journal_.staging));
    if (::unlinkat(options_.journal_fd, kJournalName, 0) != 0) return Error::System(errno, "remove the journal");
    return {};
  }

  int project_fd_;
  SessionTree tree_;
  const ApplyOptions& options_;
  ApplyPlan plan_;
  Budget budget_;
  Manifest earlier_;
  Journal journal_;
  UniqueFd staging_;
  std::unordered_map<std::string, mode_t> inherited_;  // the set-group-ID bit of new directories, by place
  ApplyReport report_;
};

}  // namespace

Result<ApplyReport> Apply(int project_fd, const SessionTree& tree, const Diff& diff, const ApplyOptions& options) {
  CAISSON_TRY(const UniqueFd lock, Lock(options.journal_fd));
  CAISSON_TRY(const std::optional<EntryStat> unfinished, StatAt(options.journal_fd, kJournalName));
  if (unfinished) return Error::Conflict("an earlier apply was interrupted and must be recovered first");
  ApplyPlan plan = MakePlan(diff, options);
  if (plan.changes.empty()) {
    ApplyReport report;
    report.applied = true;
    report.refused = std::move(plan.refused);
    return report;
  }
  return Application(project_fd, tree, options, std::move(plan)).Run();
}

Result<RecoverReport> RecoverApply(int project_fd, int journal_fd) {
  CAISSON_TRY(const UniqueFd lock, Lock(journal_fd));
  RecoverReport report;
  Result<std::string> text = ReadWholeFile(journal_fd, kJournalName, kMaxJournalBytes);
  if (!text && text.error().errno_value == ENOENT) return report;
  if (!text) return std::move(text).error();
  CAISSON_TRY(Journal journal, ParseJournal(*text));
  CAISSON_TRY(const std::optional<EntryStat> project, StatAt(project_fd, ""));
  if (!project || project->device != journal.project_device || project->inode != journal.project_inode) {
    return Error::Conflict("the interrupted apply belongs to another directory than this project");
  }
  report.outcome =
      journal.state == Journal::State::kCommitted ? RecoverReport::Outcome::kFinished : RecoverReport::Outcome::kUndone;
  if (journal.state == Journal::State::kSwapping) {
    CAISSON_TRY(report.left, UndoSteps(project_fd, journal));
    CAISSON_TRY_VOID(RememberRestored(project_fd, journal_fd, journal, report.left));
    if (!report.left.empty()) {
      // The old entries stay for the user; the journal would only fail again.
      report.outcome = RecoverReport::Outcome::kPartly;
      report.staging = journal.staging;
    }
    journal.state = Journal::State::kUndone;
    journal.steps.clear();
    if (report.left.empty()) CAISSON_TRY_VOID(ReplaceFile(journal_fd, kJournalName, JournalToText(journal)));
  }
  if (report.left.empty()) CAISSON_TRY_VOID(RemoveStaging(project_fd, journal.staging));
  if (::unlinkat(journal_fd, kJournalName, 0) != 0) return Error::System(errno, "remove the journal");
  return report;
}

}  // namespace caisson::session
