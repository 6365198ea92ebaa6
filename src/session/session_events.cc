#include "session/session_events.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "session/transcript_reader.h"
#include "verify/digest.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::session {
namespace {

using nlohmann::json;
using namespace verify;  // its readers: every second word below

// What a member must be. A string may also be given as {"base64": …}, for bytes that are not UTF-8.
enum class MemberKind : uint8_t { kText, kCount, kCommand, kExitCode, kObject, kSha256 };
struct Member {
  const char* name = nullptr;
  MemberKind kind = MemberKind::kText;
};

// The members that each type must have; any others may be there too.
struct TypeRule {
  SessionEventType type;
  const char* name;
  bool durable;
  std::array<Member, 2> members;
};
using Type = SessionEventType;
using Kind = MemberKind;
constexpr std::array kRules = {
    TypeRule{Type::kSessionOpened, "session_opened", true, {Member{"project"}, Member{"profile"}}},
    TypeRule{Type::kSessionResumed, "session_resumed", true, {}},
    TypeRule{Type::kCommandStarted, "command_started", false, {Member{"command", Kind::kCommand}}},
    TypeRule{Type::kCommandFinished,
             "command_finished",
             false,
             {Member{"command", Kind::kCommand}, Member{"exit_code", Kind::kExitCode}}},
    TypeRule{Type::kAttached, "attached", false, {}},
    TypeRule{Type::kDetached, "detached", false, {}},
    TypeRule{Type::kNetworkAllowed, "network_allowed", false, {Member{"network", Kind::kObject}}},
    TypeRule{Type::kNetworkDenied, "network_denied", false, {Member{"network", Kind::kObject}}},
    TypeRule{Type::kViolation, "violation", false, {Member{"violation", Kind::kObject}}},
    TypeRule{Type::kFileIn, "file_in", false, {Member{"path"}, Member{"bytes", Kind::kCount}}},
    TypeRule{Type::kFileOut, "file_out", false, {Member{"path"}, Member{"bytes", Kind::kCount}}},
    TypeRule{Type::kApprovalRequested, "approval_requested", true, {Member{"approval_id"}}},
    TypeRule{Type::kApprovalGranted, "approval_granted", true, {Member{"approval_id"}}},
    TypeRule{Type::kApprovalDenied, "approval_denied", true, {Member{"approval_id"}}},
    TypeRule{Type::kApprovalExpired, "approval_expired", true, {Member{"approval_id"}}},
    TypeRule{Type::kOutputTruncated, "output_truncated", false, {Member{"dropped_bytes", Kind::kCount}}},
    TypeRule{Type::kPortForwarded, "port_forwarded", false, {}},
    TypeRule{Type::kSessionForked, "session_forked", true, {}},
    TypeRule{Type::kDiffComputed, "diff_computed", false, {Member{"diff_digest", Kind::kSha256}}},
    TypeRule{Type::kApplyBegun, "apply_begun", true, {Member{"diff_digest", Kind::kSha256}}},
    TypeRule{Type::kApplied, "applied", true, {Member{"diff_digest", Kind::kSha256}}},
    TypeRule{Type::kApplyFailed, "apply_failed", true, {Member{"reason"}}},
    TypeRule{Type::kDiscarded, "discarded", true, {}},
    TypeRule{Type::kLogRepaired, "log_repaired", true, {Member{"removed_bytes", Kind::kCount}}},
    TypeRule{Type::kSessionStopped, "session_stopped", true, {Member{"reason"}}},
};

const TypeRule& RuleOf(SessionEventType type) {
  const TypeRule& rule = kRules[static_cast<size_t>(type)];
  CAISSON_CHECK(rule.type == type);
  return rule;
}

constexpr const char* kEnvelope[] = {"schema_version", "seq", "time", "session_id", "type", "prev", "hash"};

Status ExpectMember(const json& event, const Member& member) {
  CAISSON_TRY(const json* value, RequireMember(event, "", member.name));
  switch (member.kind) {
    case Kind::kText:
      if (!value->is_string() && !value->is_object()) return WrongTypeError(member.name, "a string", *value);
      return {};
    case Kind::kCount:
      CAISSON_TRY_VOID(ReadInteger(*value, member.name, 0, audit::kMaxSeq));
      return {};
    case Kind::kCommand:
      CAISSON_TRY_VOID(ReadInteger(*value, member.name, 1, UINT32_MAX));
      return {};
    case Kind::kExitCode:
      if (!value->is_null()) CAISSON_TRY_VOID(ReadInteger(*value, member.name, 0, 255));
      return {};
    case Kind::kObject:
      if (!value->is_object()) return WrongTypeError(member.name, "an object", *value);
      return {};
    case Kind::kSha256:
      CAISSON_TRY_VOID(ReadSha256(*value, member.name));
      return {};
  }
  return {};
}

Result<TranscriptDigest> ReadTranscriptDigest(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"lines", "bytes", "sha256"}));
  TranscriptDigest digest;
  CAISSON_TRY(digest.lines, ReadRequired(value, path, "lines", ReadInteger, 0, audit::kMaxSeq));
  CAISSON_TRY(digest.bytes, ReadRequired(value, path, "bytes", ReadInteger, 0, audit::kMaxSeq));
  CAISSON_TRY(digest.sha256, ReadRequired(value, path, "sha256", ReadSha256));
  return digest;
}

// Numbers that every reader of JSON holds alike, so that every reader computes the same hash.
Status ExpectWholeNumbers(const json& value, const std::string& path) {
  if (value.is_number()) {
    CAISSON_TRY_VOID(ReadInteger(value, path, -audit::kMaxSeq, audit::kMaxSeq));
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.items())
      CAISSON_TRY_VOID(ExpectWholeNumbers(member, PathOfMember(path, key)));
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) CAISSON_TRY_VOID(ExpectWholeNumbers(value[i], PathOfElement(path, i)));
  }
  return {};
}

json WithoutHash(const SessionEvent& event) {
  json object = event.members;
  object["schema_version"] = 1;
  object["seq"] = event.seq;
  object["time"] = event.time;
  object["session_id"] = event.session_id;
  object["type"] = SessionEventName(event.type);
  object["prev"] = event.prev;
  return object;
}

Result<audit::ChainLink> ReadLink(std::string_view line) {
  CAISSON_TRY(const SessionEvent event, ParseSessionEvent(line));
  return audit::ChainLink{event.seq, event.prev, event.hash, Canonical(event), HashOf(event)};
}

constexpr audit::ChainFormat kFormat = {"a session's event", kMaxSessionEventBytes, ReadLink};

// Strings as UTF-8, of at most `max_bytes`, and lists of at most `max_elements`. Command lines may be as long as the
// kernel takes them, which is longer than an event.
void MakeStorable(json& value, size_t max_bytes, size_t max_elements) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    std::string stored = ReplaceInvalidUtf8(std::string_view(text).substr(0, max_bytes));
    if (text.size() > max_bytes) stored += "…";
    value = std::move(stored);
  } else if (value.is_array()) {
    if (value.size() > max_elements) {
      value.erase(value.begin() + static_cast<ptrdiff_t>(max_elements), value.end());
      value.push_back("…");
    }
    for (json& element : value) MakeStorable(element, max_bytes, max_elements);
  } else if (value.is_object()) {
    json stored = json::object();
    for (auto& [key, member] : value.items()) {
      MakeStorable(member, max_bytes, max_elements);
      stored[ReplaceInvalidUtf8(key)] = std::move(member);
    }
    value = std::move(stored);
  }
}

}  // namespace

const char* SessionEventName(SessionEventType type) { return RuleOf(type).name; }

std::optional<SessionEventType> SessionEventTypeOf(std::string_view name) {
  for (const TypeRule& rule : kRules) {
    if (rule.name == name) return rule.type;
  }
  return std::nullopt;
}

bool IsDurable(SessionEventType type) { return RuleOf(type).durable; }

json ToJson(const TranscriptDigest& digest) {
  return {{"lines", digest.lines}, {"bytes", digest.bytes}, {"sha256", digest.sha256}};
}

Result<SessionEvent> ParseSessionEvent(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxSessionEventBytes;
  CAISSON_TRY(json root, ReadJson(text, bounds));
  CAISSON_TRY_VOID(ExpectSchemaVersion(root, ""));
  SessionEvent event;
  CAISSON_TRY(event.seq, ReadRequired(root, "", "seq", ReadInteger, 0, audit::kMaxSeq));
  CAISSON_TRY(event.time, ReadRequired(root, "", "time", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(event.session_id, ReadRequired(root, "", "session_id", ReadWord, "._-", 128));
  CAISSON_TRY(const std::string name, ReadRequired(root, "", "type", ReadString));
  const std::optional<SessionEventType> type = SessionEventTypeOf(name);
  if (!type) return FieldError("type", EscapeForTerminal(name.substr(0, 64)) + " is no event of a session");
  event.type = *type;
  CAISSON_TRY(event.prev, ReadRequired(root, "", "prev", ReadSha256));
  if ((event.seq == 0) != (event.prev == audit::kNoHash)) {
    return FieldError("prev", "is 64 zeros in the first event, whose seq is 0, and in no other");
  }
  CAISSON_TRY(event.hash, ReadRequired(root, "", "hash", ReadSha256));
  for (const Member& member : RuleOf(event.type).members) {
    if (member.name != nullptr) CAISSON_TRY_VOID(ExpectMember(root, member));
  }
  if (const json* transcript = FindMember(root, "transcript")) {
    CAISSON_TRY_VOID(ReadTranscriptDigest(*transcript, "transcript"));
  }
  CAISSON_TRY_VOID(ExpectWholeNumbers(root, ""));
  for (const char* member : kEnvelope) root.erase(member);
  event.members = std::move(root);
  return event;
}

std::string Canonical(const SessionEvent& event) {
  json object = WithoutHash(event);
  object["hash"] = event.hash;
  return audit::CanonicalJson(object);
}

std::string HashOf(const SessionEvent& event) { return audit::ChainHash(event.prev, WithoutHash(event)); }

Result<SessionEventLog> SessionEventLog::Open(std::string path, std::string session_id) {
  SessionEventLog log(std::move(path), std::move(session_id));
  std::string torn;
  {
    CAISSON_TRY(audit::ChainFile file, audit::ChainFile::Lock(log.path_));
    CAISSON_TRY(torn, file.RemoveTornLine(kFormat));
    CAISSON_TRY(log.head_, file.ReadHead(kFormat));
    log.known_size_ = file.size();
  }
  if (!torn.empty()) {
    CAISSON_TRY_VOID(
        log.Write(Type::kLogRepaired, {{"removed_bytes", torn.size()}, {"removed_sha256", Sha256Hex(torn)}}));
  }
  return log;
}

Result<audit::Head> SessionEventLog::Write(SessionEventType type, json members) {
  CAISSON_CHECK(members.is_object());
  for (const char* member : kEnvelope) CAISSON_CHECK(!members.contains(member));
  CAISSON_TRY(audit::ChainFile file, audit::ChainFile::Lock(path_));
  if (file.size() != known_size_) {
    CAISSON_TRY(head_, file.ReadHead(kFormat));  // another process wrote
  }
  SessionEvent event;
  event.seq = head_ ? head_->seq + 1 : 0;
  event.time = UtcNow();
  event.session_id = session_id_;
  event.type = type;
  event.prev = head_ ? head_->hash : audit::kNoHash;
  event.members = std::move(members);
  std::string line;
  for (const auto& [max_bytes, max_elements] :
       {std::pair<size_t, size_t>{SIZE_MAX, SIZE_MAX}, {4096, 256}, {256, 32}, {64, 8}}) {
    MakeStorable(event.members, max_bytes, max_elements);
    event.hash = HashOf(event);
    line = Canonical(event);
    if (line.size() <= kMaxSessionEventBytes) break;
  }
  // Never write an event that our own reader refuses: nothing could be appended after it.
  if (Result<SessionEvent> read_back = ParseSessionEvent(line); !read_back) {
    return std::move(read_back).error().In(std::string("event ") + SessionEventName(type));
  }
  CAISSON_TRY_VOID(file.Append(line + "\n", IsDurable(type)));
  needs_sync_ = !IsDurable(type);
  known_size_ = file.size();
  head_ = audit::Head{event.seq, event.hash};
  return *head_;
}

Status SessionEventLog::Sync() {
  CAISSON_TRY(const audit::ChainFile file, audit::ChainFile::Lock(path_));
  CAISSON_TRY_VOID(file.Sync());
  needs_sync_ = false;
  return {};
}

Result<SessionVerification> VerifySessionEvents(const std::string& path, const std::optional<audit::Head>& expected) {
  SessionVerification verification;
  const auto check = [&](std::string_view line, int64_t number) -> std::optional<audit::Verification::Finding> {
    const Result<SessionEvent> event = ParseSessionEvent(line);
    CAISSON_CHECK(event.has_value());  // the chain has read it already
    if (number == 1) verification.session_id = event->session_id;
    if (event->session_id != verification.session_id) {
      return audit::Verification::Finding{
          audit::ChainFault::kReplaced, number,
          "is of the session " + event->session_id + ", not of " + verification.session_id};
    }
    if (event->type == Type::kSessionStopped) verification.stopped = true;
    if (event->type == Type::kSessionResumed) verification.stopped = false;
    if (const json* transcript = FindMember(event->members, "transcript")) {
      verification.checkpoints.push_back(*ReadTranscriptDigest(*transcript, "transcript"));
    }
    return std::nullopt;
  };
  CAISSON_TRY(verification.chain, audit::VerifyChain(path, kFormat, expected, check));
  return verification;
}

bool IsSessionEventFile(const std::string& path) {
  Result<TranscriptLines> lines = TranscriptLines::Open(AT_FDCWD, path);
  if (!lines) return false;
  const Result<std::optional<std::string>> first = lines->Next();
  // By its looks: also a line that was tampered with must be judged as what it was.
  return first && *first && (*first)->find("\"session_id\":") != std::string::npos;
}

Status ReadSessionEvents(const std::string& path, int64_t from_seq,
                         const std::function<void(const SessionEvent&)>& take) {
  CAISSON_TRY(TranscriptLines lines, TranscriptLines::Open(AT_FDCWD, path));
  for (;;) {
    Result<std::optional<std::string>> line = lines.Next();
    const std::string place = "line " + std::to_string(lines.number());
    if (!line) return std::move(line).error().In(place);
    if (!*line) return {};
    Result<SessionEvent> event = ParseSessionEvent(**line);
    if (!event) return std::move(event).error().In(place);
    if (event->seq >= from_seq) take(*event);
  }
}

}  // namespace caisson::session
