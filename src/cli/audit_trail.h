// --audit FILE: what run and verify decided, appended to an audit log before they act on it.
#pragma once

#include <optional>
#include <string>

#include "audit/audit_log.h"
#include "base/result.h"
#include "policy/decision.h"
#include "verify/result.h"

namespace caisson::cli {

class AuditTrail {
 public:
  // An empty path records nothing.
  static Result<AuditTrail> Open(const std::string& path);

  // Each returns when the record is on the disk; on an error nothing may be done that it would have announced.
  Status Admitted(const std::string& request_id, const std::string& policy_digest, const std::string& source_digest,
                  const policy::Decision& decision) const;
  Status Rejected(const std::string& request_id, const Error& error) const;
  Status Ended(const verify::VerificationResult& result, const std::string& document) const;

 private:
  Status Append(const std::string& request_id, audit::Details details) const;

  std::optional<audit::AuditLog> log_;
};

}  // namespace caisson::cli
