// Approvals: a question to people about one plan of one job, and their answers. See schemas/approval.schema.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "verify/actor.h"

namespace caisson::verify {

// Binds an answer to its question. All four members must be equal.
struct ApprovalBinding {
  std::string approval_id;
  std::string job_id;
  std::string plan_digest;  // SHA-256 of the plan
  std::string nonce;        // 128 random bits in hex

  bool operator==(const ApprovalBinding&) const = default;
};

struct RequiredApproval {
  std::string by;    // the role that must approve; empty: any approver
  std::string kind;  // the rule that requires it
  std::string why;
};

struct ApprovalRequest {
  ApprovalBinding binding;
  std::string tenant;        // empty: none
  std::string requested_at;  // times are as UtcNow writes them and compare as text
  std::string expires_at;
  Actor submitter;
  std::vector<RequiredApproval> required;  // at least one
  int64_t quorum = 1;
};

enum class Answer { kGranted, kDenied, kExpired };

struct ApprovalDecision {
  ApprovalBinding binding;
  Answer decision = Answer::kDenied;
  std::string decided_at;
  Actor approver;      // empty when the request expired
  std::string reason;  // empty: none; a denial has one
};

using Approval = std::variant<ApprovalRequest, ApprovalDecision>;

inline constexpr size_t kMaxApprovalBytes = size_t{256} << 10;
inline constexpr int64_t kMaxQuorum = 16;

// `text` is the whole document. Errors are ErrorKind::kInvalid and name the field by path.
Result<Approval> ParseApproval(std::string_view text);

// Whether the decision answers this very request and the approver had the right to make it; ErrorKind::kDenied says why
// not.
Status CheckDecision(const ApprovalRequest& request, const ApprovalDecision& decision);

}  // namespace caisson::verify
