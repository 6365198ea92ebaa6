#include "escape/row.h"

#include <algorithm>

namespace caisson::escape {

namespace {

std::vector<Row>& MutableRows() {
  static std::vector<Row> rows;
  return rows;
}

}  // namespace

const char* Name(Seen seen) {
  switch (seen) {
    case Seen::kBlocked:
      return "BLOCKED";
    case Seen::kEscaped:
      return "ESCAPED";
    case Seen::kPartial:
      return "PARTIAL";
    case Seen::kNotApplicable:
      return "NA";
  }
  return "NA";
}

const char* Name(Severity severity) {
  switch (severity) {
    case Severity::kEscape:
      return "escape";
    case Severity::kHostLeak:
      return "host leak";
    case Severity::kExfiltration:
      return "exfiltration";
    case Severity::kLateral:
      return "lateral";
    case Severity::kHostDenial:
      return "host denial of service";
    case Severity::kPeerDenial:
      return "peer denial of service";
    case Severity::kSelfDenial:
      return "self denial of service";
    case Severity::kIntegrity:
      return "integrity";
  }
  return "escape";
}

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "PASS";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kSkip:
      return "SKIP";
  }
  return "FAIL";
}

const std::vector<Row>& Rows() { return MutableRows(); }

std::string AttemptId(const Row& row, const Attempt& attempt) {
  return attempt.name.empty() ? row.id : row.id + "/" + attempt.name;
}

const Attempt* FindAttempt(const std::string& attempt_id) {
  for (const Row& row : Rows()) {
    for (const Attempt& attempt : row.attempts) {
      if (AttemptId(row, attempt) == attempt_id) return &attempt;
    }
  }
  return nullptr;
}

Registration::Registration(Row row) {
  // Files are linked in no particular order.
  std::vector<Row>& rows = MutableRows();
  const auto place =
      std::upper_bound(rows.begin(), rows.end(), row, [](const Row& a, const Row& b) { return a.id < b.id; });
  rows.insert(place, std::move(row));
}

}  // namespace caisson::escape
