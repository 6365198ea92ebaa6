// The audit log: a file of records, one per line, that is only ever appended to.
//
//   CAISSON_TRY(AuditLog log, AuditLog::Open(path));
//   CAISSON_TRY_VOID(log.Append(entry));   // on the disk from here on
//   …                                      // only now perform the recorded action
//
// Several processes and threads may append to one file: each append holds an exclusive flock(2).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "audit/audit_record.h"
#include "audit/hash_chain.h"
#include "base/result.h"

namespace caisson::audit {

class AuditLog {
 public:
  // Creates the file if it does not exist. Fails if nothing can be appended after its last line.
  static Result<AuditLog> Open(std::string path);

  // Returns when the record is on the disk (fsync). On any error the file is unchanged and the recorded action must not
  // happen: a full disk stops the work instead of leaving it unrecorded.
  Result<Head> Append(const Entry& entry) const;
  // Appends several records in order with one fsync: all of them or none. `entries` is not empty.
  Result<Head> Append(std::span<const Entry> entries) const;

 private:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// Reads the whole log; see VerifyChain.
Result<Verification> Verify(const std::string& path, const std::optional<Head>& expected);

}  // namespace caisson::audit
