// The audit log: a file of records, one per line, that is only ever appended to.
//
//   CAISSON_TRY(AuditLog log, AuditLog::Open(path));
//   CAISSON_TRY_VOID(log.Append(entry));   // on the disk from here on
//   …                                      // only now do what the entry says
//
// Several processes and threads may append to one file: each append holds an exclusive flock(2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "audit/audit_record.h"
#include "base/result.h"

namespace caisson::audit {

class AuditLog {
 public:
  // Makes the file when there is none. Fails when its last line could not be appended to.
  static Result<AuditLog> Open(std::string path);

  // Returns when the record is on the disk (fsync). On any error the file is as it was and what the entry announces
  // must not happen: a full disk stops the work, it does not go unrecorded.
  Result<Head> Append(const Entry& entry) const;
  // The same for several, in their order, at the price of one: all of them or none. `entries` is not empty.
  Result<Head> Append(std::span<const Entry> entries) const;

 private:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

enum class ChainFault {
  kTorn,       // the last line has no end: a crash while writing
  kMalformed,  // not a record in canonical form
  kEdited,     // does not match its own hash
  kMissing,    // records before it are not in the log
  kReordered,  // another is due here, and this one or that one is elsewhere
  kReplaced,   // matches its own hash, but not what the log or the caller says it was
  kTruncated,  // the log ends before the head the caller knows of
};

const char* ChainFaultName(ChainFault fault);

struct Verification {
  struct Finding {
    ChainFault fault;
    int64_t line;  // counted from 1
    std::string message;
  };

  int64_t records = 0;       // intact ones, from the first on
  std::optional<Head> head;  // of those
  std::optional<Finding> finding;
};

// Reads the whole log. What it cannot see without `expected`: that records were cut off at the end, and that somebody
// wrote the log anew from some record to the end. With it both show, for everything up to that record.
// The error is only for a file that cannot be read.
Result<Verification> Verify(const std::string& path, const std::optional<Head>& expected);

// "SEQ:HASH"
Result<Head> ParseHead(const std::string& text);
std::string FormatHead(const Head& head);

}  // namespace caisson::audit
