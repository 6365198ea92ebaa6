// A line of an audit log is untrusted. An accepted record has one canonical form, which is accepted too and means the
// same.
#include <string>
#include <string_view>

#include "audit/audit_record.h"
#include "fault.h"
#include "target.h"

CAISSON_FUZZ_TARGET(audit_record) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const std::string one_line = caisson::audit::OneLine(text.substr(0, 4096));
  CAISSON_CHECK(!one_line.empty() && caisson::IsValidUtf8(one_line) && one_line.find('\n') == std::string::npos);
  const auto record = caisson::audit::ParseAuditRecord(text);
  if (!record) {
    CheckFault(record.error());
    return 0;
  }
  const std::string canonical = caisson::audit::Canonical(*record);
  CAISSON_CHECK(canonical.size() <= caisson::audit::kMaxRecordBytes && canonical.find('\n') == std::string::npos);
  const auto again = caisson::audit::ParseAuditRecord(canonical);
  CAISSON_CHECK(again && caisson::audit::Canonical(*again) == canonical);
  CAISSON_CHECK(caisson::audit::HashOf(*again) == caisson::audit::HashOf(*record));
  return 0;
}
