#include "session/held_changes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "session/stamp.h"
#include "session/tree_copy.h"

namespace caisson::session {

using nlohmann::json;

namespace {

Result<UniqueFd> OpenProject(const std::string& path) {
  struct open_how how {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;  // the path is canonical
  UniqueFd fd(linux_sys::OpenAt2(AT_FDCWD, path.c_str(), how));
  if (!fd) return Error::System(errno, "open " + EscapeForTerminal(path));
  return fd;
}

}  // namespace

Result<HeldChanges> HeldChanges::Hold(const SessionDirectory& directory, const Record& record) {
  if (record.state == State::kDiscarded) return Error::Conflict("the changes of " + record.name + " were discarded");
  if (record.workspace_base.empty()) return Error::Conflict("the session " + record.name + " was never open");
  HeldChanges changes;
  CAISSON_TRY(changes.lock_, directory.LockForChange());
  if (IsLive(record.state)) {
    Result<Client> client = Client::Connect(directory);
    if (client) {
      changes.client_.emplace(*std::move(client));
      CAISSON_TRY_VOID(changes.client_->Hold());
    } else if (directory.HasSupervisor()) {
      return std::move(client).error();
    }
  }
  CAISSON_TRY(changes.project_, OpenProject(record.workspace_base));
  const bool copy = record.workspace_mode == WorkspaceMode::kCopy;
  CAISSON_TRY(changes.tree_,
              linux_sys::OpenAt(directory.fd(), copy ? "copy" : "layer/upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (copy) {
    CAISSON_TRY(Manifest manifest, ReadManifest(directory.fd(), "manifest"));
    changes.manifest_ = std::move(manifest);
  }
  if (::mkdirat(directory.fd(), "journal", 0700) != 0 && errno != EEXIST)
    return Error::System(errno, "make the journal's directory");
  CAISSON_TRY(changes.journal_, linux_sys::OpenAt(directory.fd(), "journal", O_RDONLY | O_DIRECTORY));
  if (!record.workspace.empty()) {
    CAISSON_TRY(changes.recovered_, RecoverApply(changes.project_.get(), changes.journal_.get()));
  }
  return changes;
}

Result<ApplyReport> HeldChanges::ApplyTo(const Diff& diff, const Record& record, ApplyOptions options) const {
  if (!record.stamp.is_string()) return Error::Invalid("the session's record has no stamp");
  CAISSON_TRY(options.stamp, Stamp::Parse(record.stamp.get<std::string>()));
  options.journal_fd = journal_.get();
  return Apply(project_.get(), tree(), diff, options);
}

Status HeldChanges::CopyTo(const SessionDirectory& fork, const Record& record) const {
  if (record.workspace_mode == WorkspaceMode::kCopy)
    return Error::Unsupported("a session with a private copy of its project cannot be forked");
  const auto copy = [&](int from, const char* name, const CopyLimits& limits) -> Status {
    CAISSON_TRY(const UniqueFd to, linux_sys::OpenAt(fork.fd(), name, O_RDONLY | O_DIRECTORY));
    return CopyTree(from, to.get(), limits);
  };
  for (const char* name : {"base", "layer", "layer/upper", "layer/work"}) {
    if (name == std::string_view("base") && !record.workspace.empty()) continue;
    if (::mkdirat(fork.fd(), name, 0755) != 0) return Error::System(errno, "make the fork's layer");
  }
  if (record.workspace.empty()) CAISSON_TRY_VOID(copy(project_.get(), "base", {}));
  CopyLimits limits;
  limits.overlay_layer = true;
  return copy(tree_.get(), "layer/upper", limits);
}

Status HeldChanges::Note(const SessionDirectory& directory, SessionEventType type, json members) {
  if (client_) return client_->Note(SessionEventName(type), std::move(members));
  CAISSON_TRY(SessionEventLog log, SessionEventLog::Open(directory.File("events.jsonl"), directory.id()));
  CAISSON_TRY_VOID(log.Write(type, std::move(members)));
  return {};
}

Status HeldChanges::SetState(const SessionDirectory& directory, State state, const std::string& digest) {
  if (client_) {
    CAISSON_TRY_VOID(client_->Stop(NameOf(state)));
    client_.reset();
  }
  CAISSON_TRY(Record record, directory.ReadRecord());
  record.state = state;
  record.diff_digest = digest;
  if (record.ended_at.empty()) record.ended_at = UtcNow();
  return directory.WriteRecord(record);
}

bool HeldChanges::IsBusy() {
  if (!client_) return false;
  const Result<json> status = client_->Call("status");
  return status && status->value("session", json::object()).value("state", "") == "running";
}

}  // namespace caisson::session
