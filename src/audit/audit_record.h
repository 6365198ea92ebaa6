// One record of the audit log: who decided what, and why. See schemas/audit_record.schema.json.
//
// A record has one spelling, its canonical form: members sorted by name, no blanks, UTF-8 unescaped, whole numbers
// only. Its hash covers the record before it, so a record that is changed, removed or moved makes all later hashes
// wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "audit/hash_chain.h"
#include "base/result.h"
#include "policy/overrides.h"
#include "verify/actor.h"
#include "verify/approval.h"
#include "verify/job_message.h"
#include "verify/result.h"

namespace caisson::audit {

// An exception from policy, with the person who granted it, a reason and an expiry.
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
struct AdmitRecord {
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
// Of an agent session, whose id is both the request's and the run's.
struct SessionStep {
  enum Step : uint8_t { kOpened, kStopped, kApplyBegun, kApplied, kDiscarded, kRemoved };
  Step step = kOpened;
  std::string reason;
  std::string policy_digest;
  std::string diff_digest;  // of what was applied or discarded
};

// In the order of kTypeNames.
using Details =
    std::variant<AdmitRecord, Reject, OverridesGranted, ApprovalStep, Cancel, Retry, GivenUp, Ended, SessionStep>;

// The caller's part of a record; the log adds sequence number, time and hashes.
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

inline constexpr size_t kMaxRecordBytes = size_t{128} << 10;

// `text` is one line without its end. Errors are ErrorKind::kInvalid and name the field by path. Checks the form, not
// the chain: any hash is accepted.
Result<Record> ParseAuditRecord(std::string_view text);

// The record in canonical form.
std::string Canonical(const Record& record);
// The record's correct hash: SHA-256 of prev, as text, followed by the canonical form without the hash.
std::string HashOf(const Record& record);

// The record that follows `head`, or the first.
Record Chain(Entry entry, const std::optional<Head>& head, std::string time);

// How an override that policy granted is recorded.
GrantedOverride RecordOf(const policy::Override& grant);

// Makes `text` fit for a reason: valid UTF-8, on one line, not too long. Needed for errors, which quote untrusted
// input.
std::string OneLine(std::string_view text, size_t max_characters = verify::kMaxSentenceCharacters);

}  // namespace caisson::audit
