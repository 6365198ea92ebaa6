// For agreement_test.py: reads lines "SCHEMA<tab>DOCUMENT" and says of each what the program's own parser says of it:
// "accepted", or the fault.
#include <iostream>
#include <string>

#include "attest/statement.h"
#include "audit/audit_record.h"
#include "session/session_events.h"
#include "session/session_statement.h"
#include "verify/approval.h"
#include "verify/job_message.h"
#include "verify/request.h"

namespace {

template <typename T>
std::string VerdictOn(const caisson::Result<T>& parsed) {
  return parsed ? "accepted" : parsed.error().message;
}

std::string Judge(const std::string& schema, const std::string& document) {
  if (schema == "verification_request") return VerdictOn(caisson::verify::ParseRequest(document));
  if (schema == "runner_api_contract") return VerdictOn(caisson::verify::ParseJobMessage(document));
  if (schema == "approval") return VerdictOn(caisson::verify::ParseApproval(document));
  if (schema == "audit_record") return VerdictOn(caisson::audit::ParseAuditRecord(document));
  if (schema == "attestation") return VerdictOn(caisson::attest::ParseStatement(document));
  if (schema == "session_event") return VerdictOn(caisson::session::ParseSessionEvent(document));
  if (schema == "session_statement") return VerdictOn(caisson::session::ParseSessionStatement(document));
  return "no such schema";
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const size_t tab = line.find('\t');
    std::cout << Judge(line.substr(0, tab), line.substr(tab + 1)) << '\n';
  }
  return 0;
}
