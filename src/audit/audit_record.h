// One record of the audit log: who decided what, and why. See schemas/audit_record.schema.json.
//
// A record has one spelling, its canonical form: members sorted by name, no blanks, UTF-8 unescaped, whole numbers
// only. Its hash covers the record before it, so that no record can be changed, removed or moved without all later
// hashes being wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "policy/overrides.h"
#include "verify/actor.h"
#include "verify/approval.h"
#include "verify/job_message.h"
#include "verify/result.h"

namespace caisson::audit {

// An exception from policy: somebody answers for it, for a reason, until a time.
struct GrantedOverride {
  std::string id;
  std::string kind;
  std::string grant;  // what exactly, for people; empty: not said
  std::string reason;
  std::string expires;  // RFC 3339, or kEndOfTheRun
  std::string granted_by;
};
inline constexpr char kEndOfTheRun[] = "end of the run";

// What happened, one type each. Digests are SHA-256 in lower-case hex; empty strings are absent members.
struct Admit {
  std::string policy_digest;
  std::string source_digest;
  std::string plan_digest;
  std::vector<GrantedOverride> overrides;
};
struct Reject {
  std::string rule;
  std::string reason;
  std::string policy_digest;
  std::string source_digest;
};
struct OverridesGranted {
  std::vector<GrantedOverride> overrides;
  std::string policy_digest;
};
struct ApprovalStep {
  std::string approval_id;
  std::string plan_digest;
  std::optional<verify::Answer> decision;  // none yet: it was asked for
  std::string reason;
};
struct Cancel {
  std::string reason;
};
struct Retry {
  int64_t attempt = 1;  // the one that ended
  verify::RetryCause cause = verify::RetryCause::kInfrastructureError;
  std::string reason;
};
struct GivenUp {
  int64_t attempt = 1;
  std::string reason;
};
struct Ended {
  verify::VerdictStatus status = verify::VerdictStatus::kPass;
  std::string failure_class;
  std::string result_digest;
  std::string policy_digest;
  std::string source_digest;
};

// In the order of kTypeNames.
using Details = std::variant<Admit, Reject, OverridesGranted, ApprovalStep, Cancel, Retry, GivenUp, Ended>;

// What the caller has to say; the log adds the rest.
struct Entry {
  verify::Actor actor;
  std::string tenant;      // empty: none
  std::string request_id;  // empty: none, which only OverridesGranted may have
  std::string run_id;      // empty: none
  Details details;
};

struct Record {
  int64_t seq = 0;
  std::string time;
  Entry entry;
  std::string prev;
  std::string hash;
};

// The last record of a log, and so the whole of it. Kept elsewhere it proves later that nothing was cut off.
struct Head {
  int64_t seq = 0;
  std::string hash;
};

inline constexpr size_t kMaxRecordBytes = size_t{128} << 10;
inline constexpr int64_t kMaxSeq = (int64_t{1} << 53) - 1;  // what every reader of JSON can hold

// `text` is one line without its end. Errors are ErrorKind::kInvalid and name the field by path. The form is judged,
// not the chain: the hash may be any.
Result<Record> ParseAuditRecord(std::string_view text);

// The record in canonical form.
std::string Canonical(const Record& record);
// What its hash must be: SHA-256 of prev, as text, followed by the canonical form without the hash.
std::string HashOf(const Record& record);

// The record that follows `head`, or the first.
Record Chain(Entry entry, const std::optional<Head>& head, std::string time);

// How an override that policy granted is recorded.
GrantedOverride RecordOf(const policy::Override& grant);

// `text` made fit for a reason: valid UTF-8, on one line, not too long. For errors, which quote strangers.
std::string OneLine(std::string_view text, size_t max_characters = verify::kMaxSentenceCharacters);

}  // namespace caisson::audit
