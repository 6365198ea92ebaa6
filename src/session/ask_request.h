// What a program inside asks for at /run/caisson/ask.sock, and how policy judges it. One line asks, one line answers:
//
//   network pypi.org to install requests      →  granted pypi.org can be reached
//   time 2h the build is slow                 →  denied no answer came within 2 min
//
// The first word is the kind, the second what is asked for, everything behind it the reason, for the approver.
//
// SECURITY: every byte of the line is hostile. A program can only ask here; answers come from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/destinations.h"
#include "policy/profile.h"

namespace caisson::session {

inline constexpr size_t kMaxAskBytes = 1024;

struct AskRequest {
  policy::EscalationKind kind = policy::EscalationKind::kNetwork;
  std::string what;    // a destination, a class of packages, a time; without blanks
  std::string reason;  // may be empty
};

// `line` is without its end. Errors complete "denied ".
Result<AskRequest> ParseAskRequest(std::string_view line);

// What granting a request does.
struct AskEffect {
  policy::Escalation escalation = policy::Escalation::kDeny;  // kAsk or kAllow
  std::vector<std::string> entries;                           // entries of network.allow
  std::vector<network::RuleText> rules;                       // what they stand for
  int64_t more_ms = 0;                                        // later end of the session
};

// By the profile, without looking at the machine. An error is a denial that says why and what to do instead.
Result<AskEffect> JudgeAsk(const AskRequest& request, const policy::Profile& profile);

// Whether `rules` deny a destination by name, whatever else is allowed.
bool IsDenied(const policy::NetworkRules& rules, const std::string& name, uint16_t port);

}  // namespace caisson::session
