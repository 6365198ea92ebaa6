// --audit FILE: run and verify append their decisions to an audit log before they act on them.
#pragma once

#include <optional>
#include <string>

#include "audit/audit_log.h"
#include "base/result.h"
#include "verify/run_driver.h"

namespace caisson::cli {

class CommandAudit : public verify::AuditSink {
 public:
  // An empty path records nothing.
  static Result<CommandAudit> Open(const std::string& path);
  bool enabled() const { return log_.has_value(); }

  // Of the result's document; empty where nothing is recorded.
  std::string DigestOf(const nlohmann::json& document) const;

  Status Admitted(const verify::Request& request, const verify::Admitted& admitted) override;
  Status Rejected(const verify::Request& request, const Error& error) override;
  Status Ended(const verify::VerificationResult& result, const std::string& digest) override;

 private:
  Status Append(const std::string& request_id, audit::Details details) const;

  std::optional<audit::AuditLog> log_;
};

}  // namespace caisson::cli
