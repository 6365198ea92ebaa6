#include "cli/audit_trail.h"

#include <unistd.h>

#include <utility>

#include "verify/digest.h"

namespace caisson::cli {

Result<AuditTrail> AuditTrail::Open(const std::string& path) {
  AuditTrail trail;
  if (path.empty()) return trail;
  Result<audit::AuditLog> log = audit::AuditLog::Open(path);
  if (!log) return std::move(log).error().In("--audit");
  trail.log_ = *std::move(log);
  return trail;
}

Status AuditTrail::Append(const std::string& request_id, audit::Details details) const {
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

Status AuditTrail::Admitted(const std::string& request_id, const std::string& policy_digest,
                            const std::string& source_digest, const policy::Decision& decision) const {
  audit::Admit admit{policy_digest, source_digest, "", {}};
  for (const policy::Override& one : decision.overrides) admit.overrides.push_back(audit::RecordOf(one));
  return Append(request_id, std::move(admit));
}

Status AuditTrail::Rejected(const std::string& request_id, const Error& error) const {
  return Append(request_id, audit::Reject{"admission", audit::OneLine(error.message), "", ""});
}

Status AuditTrail::Ended(const verify::VerificationResult& result, const std::string& document) const {
  return Append(result.request_id,
                audit::Ended{result.verdict.status, result.verdict.failure_class, verify::Sha256Hex(document),
                             result.policy_digest, result.source_digest});
}

}  // namespace caisson::cli
