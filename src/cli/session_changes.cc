// caisson session diff, apply, discard and fork: what a session changed, and what becomes of it.
//
// Nothing may run in the session while its tree is read. This process holds a living session meanwhile: its supervisor
// stops every process, and lets them go on when this process says so or is gone.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "session/apply.h"
#include "session/diff.h"
#include "session/open_request.h"
#include "session/session_events.h"
#include "session/start.h"
#include "session/tree_copy.h"

namespace caisson::cli {

using nlohmann::json;
using nlohmann::ordered_json;
using session::State;

namespace {

// The two trees of a session, while nothing changes the session's.
struct HeldChanges {
  UniqueFd lock, project, tree_fd, journal;
  std::optional<session::Manifest> manifest;
  std::optional<session::Client> client;  // holds a living session
  session::SessionTree tree() const { return {tree_fd.get(), manifest ? &*manifest : nullptr}; }
};

Result<UniqueFd> OpenProject(const std::string& path) {
  struct open_how how {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;  // the path is canonical
  UniqueFd fd(linux_sys::OpenAt2(AT_FDCWD, path.c_str(), how));
  if (!fd) return Error::System(errno, "open " + EscapeForTerminal(path));
  return fd;
}

Status Recover(const HeldChanges& changes) {
  CAISSON_TRY(const session::RecoverReport report, session::RecoverApply(changes.project.get(), changes.journal.get()));
  using Outcome = session::RecoverReport::Outcome;
  if (report.outcome == Outcome::kUndone) Complain("an apply that was interrupted has been undone");
  if (report.outcome == Outcome::kFinished) Complain("an apply that was interrupted has been finished");
  if (report.outcome == Outcome::kPartly) {
    Complain("an apply that was interrupted could not be undone completely; the old files are in " + report.staging);
    for (const std::string& path : report.left) Complain("left as it is: " + session::QuotedPath(path));
  }
  return {};
}

Result<HeldChanges> Hold(const session::StoredSession& session) {
  const session::Record& record = session.record;
  if (record.state == State::kDiscarded) return Error::Conflict("the changes of " + record.name + " were discarded");
  if (record.workspace_base.empty()) return Error::Conflict("the session " + record.name + " was never open");
  HeldChanges changes;
  CAISSON_TRY(changes.lock, session.directory.LockForChange());
  if (session::IsLive(record.state)) {
    Result<session::Client> client = session::Client::Connect(session.directory);
    if (client) {
      changes.client.emplace(*std::move(client));
      CAISSON_TRY_VOID(changes.client->Hold());
    } else if (session.directory.HasSupervisor()) {
      return std::move(client).error();
    }
  }
  CAISSON_TRY(changes.project, OpenProject(record.workspace_base));
  const bool copy = record.workspace_mode == session::WorkspaceMode::kCopy;
  CAISSON_TRY(changes.tree_fd, linux_sys::OpenAt(session.directory.fd(), copy ? "copy" : "layer/upper",
                                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (copy) {
    CAISSON_TRY(session::Manifest manifest, session::ReadManifest(session.directory.fd(), "manifest"));
    changes.manifest = std::move(manifest);
  }
  if (::mkdirat(session.directory.fd(), "journal", 0700) != 0 && errno != EEXIST)
    return Error::System(errno, "make the journal's directory");
  CAISSON_TRY(changes.journal, linux_sys::OpenAt(session.directory.fd(), "journal", O_RDONLY | O_DIRECTORY));
  if (!record.workspace.empty()) CAISSON_TRY_VOID(Recover(changes));
  return changes;
}

// In the session's own log, by its supervisor or, when that is gone, by us.
Status Note(const session::StoredSession& session, HeldChanges& changes, session::SessionEventType type, json members) {
  members["actor"] = "uid:" + std::to_string(::getuid());
  if (changes.client) return changes.client->Note(session::SessionEventName(type), std::move(members));
  CAISSON_TRY(session::SessionEventLog log,
              session::SessionEventLog::Open(session.directory.File("events.jsonl"), session.record.id));
  CAISSON_TRY_VOID(log.Write(type, std::move(members)));
  return {};
}

Status SetState(const session::StoredSession& session, HeldChanges& changes, State state, const std::string& digest) {
  if (changes.client) {
    CAISSON_TRY_VOID(changes.client->Stop(session::NameOf(state)));
    changes.client.reset();
  }
  CAISSON_TRY(session::Record record, session.directory.ReadRecord());
  record.state = state;
  record.diff_digest = digest;
  if (record.ended_at.empty()) record.ended_at = UtcNow();
  return session.directory.WriteRecord(record);
}

ordered_json ToJson(const session::Record& record, const session::ApplyReport& report, const std::string& digest) {
  ordered_json paths = ordered_json::array(), refused = ordered_json::array(), conflicts = ordered_json::array();
  for (const std::string& path : report.paths) paths.push_back(path);
  for (const session::RefusedChange& one : report.refused)
    refused.push_back({{"path", one.path}, {"reason", session::kRefusalNames[static_cast<size_t>(one.reason)]}});
  for (const session::ApplyConflict& one : report.conflicts)
    conflicts.push_back({{"path", one.path}, {"reason", one.reason}});
  return {{"schema_version", 1}, {"id", record.id},    {"name", record.name},    {"applied", report.applied},
          {"paths", paths},      {"refused", refused}, {"conflicts", conflicts}, {"diff_digest", digest}};
}

struct ApplyFlags {
  std::vector<std::string> only;
  std::string patch;
  bool json = false, keep = false, links = false, theirs = false;
};

Result<int> Apply(const session::StoredSession& session, const ApplyFlags& flags) {
  if (flags.patch.empty() && session.record.workspace.empty())
    return Error::Conflict("the session has no project to apply to: use caisson session cp, or --patch FILE");
  CAISSON_TRY(HeldChanges changes, Hold(session));
  CAISSON_TRY(const session::Diff diff, session::ComputeDiff(changes.project.get(), changes.tree()));
  const std::string digest = diff.Digest();
  if (!flags.patch.empty()) {
    CAISSON_TRY(const std::string patch, session::RenderPatch(changes.project.get(), changes.tree(), diff));
    UniqueFd file;
    if (flags.patch != "-") {
      CAISSON_TRY(file, linux_sys::OpenOutput(flags.patch, O_TRUNC));
    }
    CAISSON_TRY_VOID(linux_sys::WriteAll(file ? file.get() : STDOUT_FILENO, patch));
    return kExitDone;
  }
  session::ApplyOptions options;
  options.only = flags.only;
  options.allow_leaving_links = flags.links;
  options.overwrite_changed = flags.theirs;
  options.journal_fd = changes.journal.get();
  if (!session.record.stamp.is_string()) return Error::Invalid("the session's record has no stamp");
  CAISSON_TRY(options.stamp, session::Stamp::Parse(session.record.stamp.get<std::string>()));
  // On the disk before the project changes.
  CAISSON_TRY_VOID(
      Note(session, changes, session::SessionEventType::kApplyBegun, {{"diff_digest", digest}, {"only", flags.only}}));
  Result<session::ApplyReport> report = session::Apply(changes.project.get(), changes.tree(), diff, options);
  if (!report || !report->applied) {
    const std::string why = report ? std::to_string(report->conflicts.size()) + " conflicts" : report.error().message;
    CAISSON_TRY_VOID(Note(session, changes, session::SessionEventType::kApplyFailed, {{"reason", why}}));
    if (!report) return std::move(report).error();
  } else {
    CAISSON_TRY_VOID(Note(session, changes, session::SessionEventType::kApplied, {{"diff_digest", digest}}));
  }
  if (flags.json) Print(ToJson(session.record, *report, digest));
  for (const session::ApplyConflict& conflict : report->conflicts)
    Complain("conflict: " + session::QuotedPath(conflict.path) + ": " + conflict.reason);
  if (!report->applied) {
    Complain(
        "nothing was applied; look at both sides (caisson session diff), then choose paths with --only, or "
        "--theirs to overwrite");
    return kExitState;
  }
  for (const session::RefusedChange& one : report->refused)
    Complain("not applied: " + session::QuotedPath(one.path) + ": " +
             session::kRefusalNames[static_cast<size_t>(one.reason)]);
  const bool busy = [&] {
    if (!changes.client) return false;
    const Result<json> status = changes.client->Call("status");
    return status && (*status)["session"].value("state", "") == "running";
  }();
  const bool whole = flags.only.empty();
  if (whole && !flags.keep && !busy) CAISSON_TRY_VOID(SetState(session, changes, State::kApplied, digest));
  if (!flags.json) {
    std::printf("applied %zu change%s to %s\n", report->paths.size(), report->paths.size() == 1 ? "" : "s",
                EscapeForTerminal(session.record.workspace).c_str());
    if (busy && whole) Complain("the session goes on, because commands are running in it");
  }
  return kExitDone;
}

Result<int> Discard(const session::StoredSession& session, bool as_json) {
  if (session.record.state != State::kDiscarded) {
    CAISSON_TRY(HeldChanges changes, Hold(session));
    CAISSON_TRY_VOID(Note(session, changes, session::SessionEventType::kDiscarded, json::object()));
    CAISSON_TRY_VOID(SetState(session, changes, State::kDiscarded, ""));
    for (const char* name : {"layer", "copy", "manifest"})
      CAISSON_TRY_VOID(session::RemoveTree(session.directory.fd(), name));
  }
  if (as_json)
    Print({{"schema_version", 1}, {"id", session.record.id}, {"name", session.record.name}, {"state", "discarded"}});
  else
    std::printf("discarded the changes of %s\n", session.record.name.c_str());
  return kExitDone;
}

Result<int> Show(const session::StoredSession& session, bool stat, bool as_json) {
  CAISSON_TRY(HeldChanges changes, Hold(session));
  CAISSON_TRY(const session::Diff diff, session::ComputeDiff(changes.project.get(), changes.tree()));
  std::string text;
  if (as_json) {
    text = session::DiffToJson(diff) + "\n";
  } else if (stat) {
    text = session::DiffToText(diff);
  } else {
    CAISSON_TRY(text, session::RenderPatch(changes.project.get(), changes.tree(), diff));
    // Bytes of files are shown as they are only to programs.
    if (::isatty(STDOUT_FILENO)) text = EscapeForTerminal(text, LineBreaks::kKeep);
  }
  CAISSON_TRY_VOID(Note(session, changes, session::SessionEventType::kDiffComputed,
                        {{"diff_digest", diff.Digest()}, {"changes", diff.changes.size()}}));
  changes = HeldChanges();  // the session goes on while the reader takes its time
  std::fflush(stdout);
  CAISSON_TRY_VOID(linux_sys::WriteAll(STDOUT_FILENO, text));
  return kExitDone;
}

int CodeOf(const Result<int>& result) { return result ? *result : Fail(result.error()); }

Result<int> Fork(const session::StoredSession& session, const std::string& name, bool as_json) {
  if (session.record.workspace_mode == session::WorkspaceMode::kCopy)
    return Error::Unsupported("a session with a private copy of its project cannot be forked");
  CAISSON_TRY(const std::string text, session.directory.ReadText("request.json", size_t{8} << 20));
  CAISSON_TRY(session::OpenRequest request, session::ReadOpenRequest(text));
  request.name = name;
  request.forked_from = session.record.id;
  if (session.record.stamp.is_string()) request.stamp = session.record.stamp.get<std::string>();
  CAISSON_TRY(session::SessionDirectory directory, session::SessionDirectory::Create(session.directory.root()));
  const Result<session::Record> record = [&]() -> Result<session::Record> {
    CAISSON_TRY(HeldChanges changes, Hold(session));
    for (const char* part : {"layer", "layer/upper", "layer/work"}) {
      if (::mkdirat(directory.fd(), part, 0755) != 0) return Error::System(errno, "make the fork's layer");
    }
    CAISSON_TRY(const UniqueFd upper, linux_sys::OpenAt(directory.fd(), "layer/upper", O_RDONLY | O_DIRECTORY));
    session::CopyLimits limits;
    limits.overlay_layer = true;
    CAISSON_TRY_VOID(session::CopyTree(changes.tree_fd.get(), upper.get(), limits));
    CAISSON_TRY_VOID(Note(session, changes, session::SessionEventType::kSessionForked, {{"fork", directory.id()}}));
    changes = HeldChanges();
    return session::StartSupervisor(directory, request);
  }();
  if (!record) {
    if (const Status removed = directory.Remove(); !removed) Complain(removed.error().message);
    return record.error();
  }
  if (as_json)
    Print(PublicJson(*record));
  else
    std::printf("%s\n", record->id.c_str());
  return kExitDone;
}

}  // namespace

int ShowChanges(const session::StoredSession& session, bool stat, bool as_json) {
  return CodeOf(Show(session, stat, as_json));
}

int ApplyChanges(const session::StoredSession& session, const std::vector<std::string>& only, bool as_json) {
  ApplyFlags flags;
  flags.only = only;
  flags.json = as_json;
  return CodeOf(Apply(session, flags));
}

int DiscardChanges(const session::StoredSession& session, bool as_json) { return CodeOf(Discard(session, as_json)); }

int SessionDiff(Arguments arguments) {
  CLI::App app("What a session changed: a patch, or --stat, or --json.\nUsage: caisson session diff ID",
               "session diff");
  bool as_json = false, stat = false;
  Prepare(app, &as_json);
  std::string id;
  app.add_option("ID", id, "The session")->required();
  app.add_flag("--stat", stat, "One line for each change");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  return found ? ShowChanges(*found, stat, as_json) : Fail(found.error());
}

int SessionApply(Arguments arguments) {
  CLI::App app(
      "Bring the changes of a session into its project: all of them, or none.\n"
      "Usage: caisson session apply ID [--only PATH...]",
      "session apply");
  app.footer(R"(
A file that changed in the project since the session was opened is a conflict: nothing is applied, and the exit code is 5.
Changes below .git, devices, set-user-ID files and the like are never applied, and are listed; commits come to refs/caisson/
of the project first, as caisson session commits does it. Applying everything ends the session, unless commands still run
in it.)");
  ApplyFlags flags;
  Prepare(app, &flags.json);
  std::string id;
  app.add_option("ID", id, "The session")->required();
  app.add_option("--only", flags.only, "Apply these paths (or globs such as src/**) and nothing else; may be repeated")
      ->allow_extra_args(true);
  app.add_option("--patch", flags.patch, "Write a patch to FILE (or -) and leave the project as it is");
  app.add_flag("--keep-open", flags.keep, "Do not end the session");
  app.add_flag("--theirs", flags.theirs, "Overwrite what changed in the project since the session was opened");
  app.add_flag("--allow-leaving-links", flags.links, "Also apply symbolic links that lead out of the project");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  // Only while it lives can git inside pack them, and applying everything ends it.
  if (flags.only.empty() && flags.patch.empty() && MayHaveCommits(*found)) {
    const Result<FetchedCommits> commits = FetchCommits(*found);
    if (!commits) {
      Complain("commits made inside were not fetched, so the session stays open: " + commits.error().message);
      flags.keep = true;
    } else if (commits->is_new) {
      for (const auto& one : commits->refs) Complain("fetched " + one["ref"].get<std::string>());
    }
  }
  return CodeOf(Apply(*found, flags));
}

int SessionDiscard(Arguments arguments) {
  CLI::App app("Drop what a session changed, and end it.\nUsage: caisson session discard ID", "session discard");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  app.add_option("ID", id, "The session")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  return found ? DiscardChanges(*found, as_json) : Fail(found.error());
}

int SessionFork(Arguments arguments) {
  CLI::App app("Open another session that begins with the changes of this one.\nUsage: caisson session fork ID",
               "session fork");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id, name;
  app.add_option("ID", id, "The session")->required();
  app.add_option("--name", name, "A name for the new one");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  return found ? CodeOf(Fork(*found, name, as_json)) : Fail(found.error());
}

}  // namespace caisson::cli
