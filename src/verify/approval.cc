#include "verify/approval.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

constexpr size_t kMaxRequiredApprovals = 32;

Fault FaultInNonce(std::string_view text) {
  constexpr size_t kDigits = 32;
  if (text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos) {
    return std::nullopt;
  }
  return "must be 32 hexadecimal digits in lower case";
}

Result<ApprovalBinding> ReadBinding(const json& root) {
  ApprovalBinding binding;
  CAISSON_TRY(binding.approval_id, ReadRequired(root, "", "approval_id", ReadWord, "._-", 128));
  CAISSON_TRY(binding.job_id, ReadRequired(root, "", "job_id", ReadWord, "._-", 128));
  CAISSON_TRY(binding.plan_digest, ReadRequired(root, "", "plan_digest", ReadSha256));
  CAISSON_TRY(binding.nonce, ReadRequired(root, "", "nonce", ReadText, FaultInNonce));
  return binding;
}

Result<std::vector<RequiredApproval>> ReadRequiredApprovals(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectArray(value, path, 1, kMaxRequiredApprovals));
  std::vector<RequiredApproval> list;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string element_path = PathOfElement(path, i);
    CAISSON_TRY_VOID(ExpectObject(value[i], element_path, {"by", "kind", "why"}));
    RequiredApproval required;
    CAISSON_TRY_VOID(ReadOptional(value[i], element_path, "by", required.by, ReadSentence, kMaxSubjectCharacters));
    CAISSON_TRY(required.kind, ReadRequired(value[i], element_path, "kind", ReadWord, "._-", 64));
    CAISSON_TRY(required.why, ReadRequired(value[i], element_path, "why", ReadSentence, kMaxSentenceCharacters));
    list.push_back(std::move(required));
  }
  return list;
}

Result<Approval> ReadApprovalRequest(const json& root) {
  CAISSON_TRY_VOID(ExpectObject(root, "",
                                {"schema_version", "kind", "approval_id", "job_id", "tenant", "plan_digest", "nonce",
                                 "requested_at", "expires_at", "submitter", "required", "quorum"}));
  ApprovalRequest request;
  CAISSON_TRY(request.binding, ReadBinding(root));
  CAISSON_TRY_VOID(ReadOptional(root, "", "tenant", request.tenant, ReadWord, "._-", 64));
  CAISSON_TRY(request.requested_at, ReadRequired(root, "", "requested_at", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY(request.expires_at, ReadRequired(root, "", "expires_at", ReadText, FaultInUtcTimestamp));
  if (request.expires_at <= request.requested_at) return FieldError("expires_at", "must be later than requested_at");
  CAISSON_TRY(request.submitter, ReadRequired(root, "", "submitter", ReadActor));
  CAISSON_TRY(request.required, ReadRequired(root, "", "required", ReadRequiredApprovals));
  CAISSON_TRY(request.quorum, ReadRequired(root, "", "quorum", ReadInteger, 1, kMaxQuorum));
  return Approval(std::move(request));
}

Result<Answer> ReadAnswer(const json& value, const std::string& path) {
  CAISSON_TRY(const size_t choice, ReadChoice(value, path, {"granted", "denied", "expired"}));
  return static_cast<Answer>(choice);
}

Result<Approval> ReadApprovalDecision(const json& root) {
  CAISSON_TRY_VOID(ExpectObject(root, "",
                                {"schema_version", "kind", "approval_id", "job_id", "plan_digest", "nonce", "decision",
                                 "decided_at", "approver", "reason"}));
  ApprovalDecision decision;
  CAISSON_TRY(decision.binding, ReadBinding(root));
  CAISSON_TRY(decision.decision, ReadRequired(root, "", "decision", ReadAnswer));
  CAISSON_TRY(decision.decided_at, ReadRequired(root, "", "decided_at", ReadText, FaultInUtcTimestamp));
  CAISSON_TRY_VOID(ReadOptional(root, "", "reason", decision.reason, ReadSentence, kMaxSentenceCharacters));
  if (decision.decision == Answer::kDenied && decision.reason.empty()) {
    return FieldError("reason", "required field is missing: a denial says why");
  }
  if (decision.decision == Answer::kExpired) {
    if (FindMember(root, "approver") != nullptr) return FieldError("approver", "nobody decides what expires");
  } else {
    CAISSON_TRY(decision.approver, ReadRequired(root, "", "approver", ReadActor));
  }
  return Approval(std::move(decision));
}

}  // namespace

Result<Approval> ParseApproval(std::string_view text) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxApprovalBytes;
  CAISSON_TRY(const json root, ReadJson(text, bounds));
  CAISSON_TRY(const size_t kind, ReadEnvelope(root, "", {"request", "decision"}));
  return kind == 0 ? ReadApprovalRequest(root) : ReadApprovalDecision(root);
}

Status CheckDecision(const ApprovalRequest& request, const ApprovalDecision& decision) {
  if (decision.binding.plan_digest != request.binding.plan_digest) {
    return Error::Denied("the decision is about another plan than the one to be run");
  }
  if (!(decision.binding == request.binding)) return Error::Denied("the decision answers another request");
  if (decision.decision == Answer::kExpired) return {};
  if (decision.decided_at >= request.expires_at) {
    return Error::Denied("the decision came at " + decision.decided_at + "; the request had expired at " +
                         request.expires_at);
  }
  // SECURITY: four-eyes principle. A denial needs no second person.
  if (decision.decision == Answer::kGranted && decision.approver.subject == request.submitter.subject) {
    return Error::Denied(Quoted(request.submitter.subject) + " cannot approve what is their own");
  }
  return {};
}

}  // namespace caisson::verify
