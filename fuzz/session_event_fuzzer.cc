// A line of a session's events is untrusted, and so is the statement about a session. What is accepted has one
// canonical form, which is accepted too and means the same.
#include <string>
#include <string_view>

#include "fault.h"
#include "session/session_events.h"
#include "session/session_statement.h"
#include "target.h"

CAISSON_FUZZ_TARGET(session_event) {
  using namespace caisson::session;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  if (const auto statement = ParseSessionStatement(text); statement) {
    const auto again = ParseSessionStatement(Canonical(*statement));
    CAISSON_CHECK(again && Canonical(*again) == Canonical(*statement));
    CAISSON_CHECK(IsSessionStatement(text));
  }
  const auto event = ParseSessionEvent(text);
  if (!event) {
    CheckFault(event.error());
    return 0;
  }
  const std::string canonical = Canonical(*event);
  CAISSON_CHECK(canonical.find('\n') == std::string::npos);
  const auto again = ParseSessionEvent(canonical);
  CAISSON_CHECK(again && Canonical(*again) == canonical && HashOf(*again) == HashOf(*event));
  return 0;
}
