// The line that a program in a session sends to ask.sock. What the parser accepts can be shown to a person, says the
// same when it is written down again, and is judged without a fault.
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "fault.h"
#include "policy/profile.h"
#include "session/ask_request.h"
#include "target.h"

CAISSON_FUZZ_TARGET(ask_request) {
  using namespace caisson;
  using namespace caisson::session;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto request = ParseAskRequest(text);
  if (!request) return 0;
  CAISSON_CHECK(EscapeForTerminal(request->what) == request->what);
  CAISSON_CHECK(EscapeForTerminal(request->reason) == request->reason);
  const auto again = ParseAskRequest(std::string(policy::NameOf(request->kind)) + " " + request->what +
                                     (request->reason.empty() ? "" : " " + request->reason));
  CAISSON_CHECK(again && again->kind == request->kind && again->what == request->what);
  policy::Profile profile;
  profile.network.mode = policy::NetworkMode::kAllowlist;
  profile.network.deny = {"never.example"};
  profile.approvals.kinds.fill(policy::Escalation::kAsk);
  if (const auto effect = JudgeAsk(*request, profile); effect)
    CAISSON_CHECK(!effect->rules.empty() || effect->more_ms > 0 || request->kind > policy::EscalationKind::kTime);
  return 0;
}
