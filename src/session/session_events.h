// The events of a session, events.jsonl: what happened, in order, one JSON object per line. See
// schemas/session_event.schema.json. The lines are a hash chain like the audit log's, so a line that is changed,
// removed or moved is found; a cut-off end is found with the head that session.json records.
//
//   CAISSON_TRY(SessionEventLog events, SessionEventLog::Open(path, session_id));
//   CAISSON_TRY_VOID(events.Write(SessionEventType::kApplied, {{"diff_digest", digest}, {"paths", 3}}));
//   …                                      // only now change the host's files
//
// Several processes may write to one file (the session's own process, and later the command that applies its changes):
// each append holds an exclusive flock(2).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/hash_chain.h"
#include "base/result.h"
#include "session/transcript_format.h"

namespace caisson::session {

// In the order of their names in session_events.cc.
enum class SessionEventType : uint8_t {
  kSessionOpened,
  kSessionResumed,
  kCommandStarted,
  kCommandFinished,
  kAttached,
  kDetached,
  kNetworkAllowed,
  kNetworkDenied,
  kViolation,
  kFileIn,
  kFileOut,
  kApprovalRequested,
  kApprovalGranted,
  kApprovalDenied,
  kApprovalExpired,
  kOutputTruncated,
  kPortForwarded,
  kSessionForked,
  kDiffComputed,
  kApplyBegun,
  kApplied,
  kApplyFailed,
  kDiscarded,
  kLogRepaired,
  kSessionStopped,
};

const char* SessionEventName(SessionEventType type);
std::optional<SessionEventType> SessionEventTypeOf(std::string_view name);

// Whether an event must be on the disk before the action it records: true for approvals, apply_begun and discarded, and
// for those after which nothing may follow.
bool IsDurable(SessionEventType type);

struct SessionEvent {
  int64_t seq = 0;
  std::string time;
  std::string session_id;
  SessionEventType type = SessionEventType::kSessionOpened;
  nlohmann::json members;  // of the type; an object without the members above
  std::string prev, hash;
};

inline constexpr size_t kMaxSessionEventBytes = size_t{128} << 10;

class SessionEventLog {
 public:
  // Creates the file if it does not exist. A torn last line, which a crash left behind, is removed and recorded as
  // log_repaired. A last line that is not intact is an error: nothing can follow it.
  static Result<SessionEventLog> Open(std::string path, std::string session_id);

  // `members` is an object with the type's members (session_events.cc lists those that must be there) and any others.
  // Invalid UTF-8 in its strings becomes U+FFFD; if the event is too long, long strings and lists are shortened.
  // Returns when the event is in the file and, if IsDurable(type), on the disk together with all before it. On any
  // error the file is unchanged; the recorded action must not happen.
  Result<audit::Head> Write(SessionEventType type, nlohmann::json members);
  // Puts all events on the disk. For the owner's timer: events that are not durable may wait a second.
  Status Sync();
  bool needs_sync() const { return needs_sync_; }

  // Of the last event this log wrote or found; for session.json. None: no event yet.
  const std::optional<audit::Head>& head() const { return head_; }

 private:
  SessionEventLog(std::string path, std::string session_id)
      : path_(std::move(path)), session_id_(std::move(session_id)) {}

  std::string path_;
  std::string session_id_;
  std::optional<audit::Head> head_;
  int64_t known_size_ = 0;  // of the file after the event that head_ is of
  bool needs_sync_ = false;
};

// The member "transcript" of an event: what the transcript was when the event was written. Verification compares the
// file with it.
nlohmann::json ToJson(const TranscriptDigest& digest);

// `text` is one line without its end. Errors are ErrorKind::kInvalid and name the field by path. Checks the form, not
// the chain.
Result<SessionEvent> ParseSessionEvent(std::string_view text);
// In canonical form: members sorted by name, no blanks, UTF-8 unescaped.
std::string Canonical(const SessionEvent& event);
// The event's correct hash: SHA-256 of prev, as text, followed by the canonical form without the hash.
std::string HashOf(const SessionEvent& event);

struct SessionVerification {
  audit::Verification chain;
  std::string session_id;  // of the first event
  bool stopped = false;    // session_stopped is there, and no session_resumed after it
  // Of the transcript, as the events recorded it: after each command, and at the end.
  std::vector<TranscriptDigest> checkpoints;
};

// Checks every line, its place and its hash, and that all are of one session. `expected` is a head that the log once
// had. Without it a cut-off end shows only in `stopped`, if session_stopped is missing. An Error means only that the
// file cannot be read.
Result<SessionVerification> VerifySessionEvents(const std::string& path, const std::optional<audit::Head>& expected);

// Whether the file's first line is a session's event: tells the two kinds of chained logs apart. An empty or unreadable
// file is none.
bool IsSessionEventFile(const std::string& path);

// For readers that show events: calls `take` for each whole line from `seq` on; stops at the first that is malformed
// and returns it as an error "line N: …".
Status ReadSessionEvents(const std::string& path, int64_t from_seq,
                         const std::function<void(const SessionEvent&)>& take);

}  // namespace caisson::session
