#include "cli/command_audit.h"

#include <unistd.h>

#include <utility>

#include "verify/digest.h"

namespace caisson::cli {

Result<CommandAudit> CommandAudit::Open(const std::string& path) {
  CommandAudit audit;
  if (path.empty()) return audit;
  Result<audit::AuditLog> log = audit::AuditLog::Open(path);
  if (!log) return std::move(log).error().In("--audit");
  audit.log_ = *std::move(log);
  return audit;
}

Status CommandAudit::Append(const std::string& request_id, audit::Details details) const {
  if (!log_) return {};
  audit::Entry entry;
  entry.actor = {"uid:" + std::to_string(::getuid()), verify::Role::kOperator};
  entry.request_id = request_id;
  entry.details = std::move(details);
  const Result<audit::Head> head = log_->Append(entry);
  if (!head) {
    Error error = head.error();
    return std::move(error).In("--audit");
  }
  return {};
}

std::string CommandAudit::DigestOf(const nlohmann::json& document) const {
  return log_ ? verify::Sha256Hex(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) : "";
}

Status CommandAudit::Admitted(const verify::Request& request, const verify::Admitted& admitted) {
  audit::AdmitRecord admit{admitted.policy_digest, admitted.source_digest, "", {}};
  for (const policy::Override& one : admitted.plan.decision.overrides) admit.overrides.push_back(audit::RecordOf(one));
  return Append(request.request_id, std::move(admit));
}

Status CommandAudit::Rejected(const verify::Request& request, const Error& error) {
  return Append(request.request_id, audit::Reject{"admission", audit::OneLine(error.message), "", ""});
}

Status CommandAudit::Ended(const verify::VerificationResult& result, const std::string& digest) {
  return Append(result.request_id, audit::Ended{result.verdict.status, result.verdict.failure_class, digest,
                                                result.policy_digest, result.source_digest});
}

}  // namespace caisson::cli
