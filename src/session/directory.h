// Where sessions are kept: one directory for each, below one root of the user.
//
//   ROOT/ses_ID/session.json     the record (session/session_record.h)
//               request.json     what was asked for when it was opened (session/open_request.h)
//               layer/upper      what was changed in the workspace; layer/work is the overlay's own
//               base, copy       an empty project; the private copy where there is no overlay, and what it was made
//               from events.jsonl, transcript.cast, commands/N.out|err control.sock     while it lives; lock: held by
//               the supervisor supervisor.log   what the supervisor itself said
//
// All of it is the user's own, mode 0700. What is in layer/ and copy/ was written by hostile programs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "session/session_record.h"

namespace caisson::session {

// $CAISSON_SESSIONS; for root /var/lib/caisson/sessions; else $XDG_STATE_HOME or ~/.local/state, and caisson/sessions.
Result<std::string> SessionsRoot();

class SessionDirectory {
 public:
  // Creates the root where it is missing, and a directory with a new random id.
  static Result<SessionDirectory> Create(const std::string& root);
  static Result<SessionDirectory> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& id() const { return id_; }
  std::string root() const { return path_.substr(0, path_.rfind('/')); }
  int fd() const { return fd_.get(); }
  std::string File(const char* name) const { return path_ + "/" + name; }

  // kNotFound while there is none.
  Result<Record> ReadRecord() const;
  Status WriteRecord(const Record& record) const;
  Result<std::string> ReadText(const char* name, size_t most_bytes) const;
  Status WriteText(const char* name, std::string_view text) const;

  // The lock that says that a supervisor is alive. It ends with the process that took it, however that ends: the
  // processes that it forks keep no descriptor of it.
  Result<UniqueFd> LockAsSupervisor() const;
  bool HasSupervisor() const;
  // For commands that change an ended session. Waits for others; ends with the descriptor.
  Result<UniqueFd> LockForChange() const;

  // Everything in it, and itself. What cannot be removed is an error.
  Status Remove() const;

 private:
  SessionDirectory(std::string path, std::string id, UniqueFd fd)
      : path_(std::move(path)), id_(std::move(id)), fd_(std::move(fd)) {}

  std::string path_, id_;
  UniqueFd fd_;
};

struct StoredSession {
  SessionDirectory directory;
  Record record;
};

// The record, with the state `lost` where the supervisor is gone without having said so. Writes that down too.
Result<Record> ReadSettledRecord(const SessionDirectory& directory);

// All sessions, the latest first. Directories that hold no session are left out.
Result<std::vector<StoredSession>> ListSessions(const std::string& root);
// By id, by name, or by the beginning of an id. Of several with one name the living one, else the latest.
Result<StoredSession> FindSession(const std::string& root, const std::string& text);

// "[a-z0-9][a-z0-9._-]{0,63}", not beginning as an id does.
bool IsSessionName(std::string_view name);
// While held, no other session gets a name.
Result<UniqueFd> LockNames(const std::string& root);
// `wanted`, or the directory name of `project` with a number where it is taken; kConflict when `wanted` is taken.
Result<std::string> ChooseName(const std::string& root, const std::string& wanted, const std::string& project);

// Removes a tree beneath `parent` without following links out of it. Names that do not exist are no error. Makes its
// directories accessible first where their modes forbid it.
Status RemoveTree(int parent, const std::string& name);

}  // namespace caisson::session
