// Any bytes may be sent as an approval. An accepted one keeps the promises of approval.h.
#include <string_view>

#include "fault.h"
#include "target.h"
#include "verify/approval.h"

namespace {

using caisson::verify::Answer;
using caisson::verify::ApprovalBinding;
using caisson::verify::ApprovalDecision;
using caisson::verify::ApprovalRequest;

void CheckBinding(const ApprovalBinding& binding) {
  CAISSON_CHECK(!binding.approval_id.empty() && !binding.job_id.empty());
  CAISSON_CHECK(binding.plan_digest.size() == 64 && binding.nonce.size() == 32);
}

}  // namespace

CAISSON_FUZZ_TARGET(approval) {
  const auto approval = caisson::verify::ParseApproval({reinterpret_cast<const char*>(bytes), size});
  if (!approval) {
    CheckFault(approval.error());
  } else if (const auto* request = std::get_if<ApprovalRequest>(&*approval)) {
    CheckBinding(request->binding);
    CAISSON_CHECK(request->quorum >= 1 && !request->required.empty() && request->requested_at < request->expires_at);
    CAISSON_CHECK(!request->submitter.subject.empty());
    // A submitter cannot approve the own request under any spelling of the name.
    ApprovalDecision own;
    own.binding = request->binding;
    own.decision = Answer::kGranted;
    own.decided_at = request->requested_at;
    own.approver = request->submitter;
    CAISSON_CHECK(!caisson::verify::CheckDecision(*request, own));
  } else {
    const auto& decision = std::get<ApprovalDecision>(*approval);
    CheckBinding(decision.binding);
    CAISSON_CHECK(decision.approver.subject.empty() == (decision.decision == Answer::kExpired));
    CAISSON_CHECK(decision.decision != Answer::kDenied || !decision.reason.empty());
  }
  return 0;
}
