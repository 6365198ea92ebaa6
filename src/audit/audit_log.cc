#include "audit/audit_log.h"

#include "base/clock.h"

namespace caisson::audit {
namespace {

Result<ChainLink> ReadLink(std::string_view line) {
  CAISSON_TRY(const Record record, ParseAuditRecord(line));
  return ChainLink{record.seq, record.prev, record.hash, Canonical(record), HashOf(record)};
}

constexpr ChainFormat kFormat = {"an audit record", kMaxRecordBytes, ReadLink};

}  // namespace

Result<AuditLog> AuditLog::Open(std::string path) {
  CAISSON_TRY(const ChainFile file, ChainFile::Lock(path));
  CAISSON_TRY_VOID(file.ReadHead(kFormat));
  return AuditLog(std::move(path));
}

Result<Head> AuditLog::Append(const Entry& entry) const { return Append(std::span(&entry, 1)); }

Result<Head> AuditLog::Append(std::span<const Entry> entries) const {
  CAISSON_TRY(ChainFile file, ChainFile::Lock(path_));
  CAISSON_TRY(std::optional<Head> head, file.ReadHead(kFormat));
  std::string lines;
  for (const Entry& entry : entries) {
    const Record record = Chain(entry, head, UtcNow());
    const std::string line = Canonical(record);
    // Never write a record that our own reader refuses: nothing could be appended after it.
    if (const Result<Record> read_back = ParseAuditRecord(line); !read_back) {
      return Error(read_back.error()).In("audit record");
    }
    lines.append(line).push_back('\n');
    head = Head{record.seq, record.hash};
  }
  CAISSON_TRY_VOID(file.Append(lines, true));
  return *head;
}

Result<Verification> Verify(const std::string& path, const std::optional<Head>& expected) {
  return VerifyChain(path, kFormat, expected);
}

}  // namespace caisson::audit
