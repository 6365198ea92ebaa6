#include "session/ask_request.h"

#include <algorithm>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "policy/network_plan.h"
#include "policy/syntax.h"

namespace caisson::session {

using policy::Escalation;
using policy::EscalationKind;

namespace {

constexpr size_t kMaxWhatBytes = 300;
constexpr size_t kMaxReasonBytes = 500;
constexpr int64_t kMostMoreMs = int64_t{24} * 3600 * 1000;

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

// How a session gets what cannot be given to one that runs.
std::string HowToOpen(EscalationKind kind, const std::string& what) {
  switch (kind) {
    case EscalationKind::kMemory:
      return "the memory of a session is fixed when it is opened; ask for one opened with --memory " + what;
    case EscalationKind::kMount:
      return "paths of the host are shown when a session is opened; ask for one opened with -v " + what + ":" + what +
             ":ro, or for a copy: caisson session cp";
    case EscalationKind::kHostPort:
      return "ports of the host are shown when a session is opened; ask for one opened with --host-port " + what;
    case EscalationKind::kCredential:
      return "secrets are bound when a session is opened; ask for one opened with --credential " + what;
    default:
      return std::string("the profile does not let a session ask for it (approvals.") + policy::NameOf(kind) + ")";
  }
}

Status AddDestination(const std::string& entry, const policy::Profile& profile, AskEffect& effect) {
  if (const policy::Fault fault = policy::FaultInAllowEntry(entry)) return Error::Invalid(Quoted(entry) + " " + *fault);
  for (network::RuleText& text : policy::ExpandDestinations({entry})) {
    const Result<network::Rule> rule = network::ParseAllowRule(text.text);
    if (!rule) return Error::Invalid(Quoted(entry) + " " + rule.error().message);
    if (rule->match == network::Rule::Match::kAddress)
      return Error::Denied("addresses are not given to a session that runs; name the host");
    if (IsDenied(profile.network, rule->host.name, rule->port))
      return Error::Denied("a rule of the policy denies " + rule->host.name);
    effect.rules.push_back(std::move(text));
  }
  effect.entries.push_back(entry);
  return {};
}

}  // namespace

bool IsDenied(const policy::NetworkRules& rules, const std::string& name, uint16_t port) {
  policy::NetworkRules alone;
  alone.deny = rules.deny;
  const Result<policy::NetworkPlan> plan = policy::MakeNetworkPlan(alone);
  const Result<network::Host> host = network::Host::Parse(name);
  // What cannot be judged is denied.
  return !plan || !host || std::string_view(plan->rules.Decide(*host, port).reason) == "denied_by_rule";
}

Result<AskRequest> ParseAskRequest(std::string_view line) {
  if (line.size() > kMaxAskBytes) return Error::Invalid("the line is too long");
  const size_t first = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, first);
  const std::string_view rest = line.substr(std::min(first + 1, line.size()));
  const auto known = std::find(policy::kEscalationKindNames.begin(), policy::kEscalationKindNames.end(), word);
  if (known == policy::kEscalationKindNames.end())
    return Error::Invalid("the first word must be one of network, install, time, memory, mount, host_port, credential");
  AskRequest request;
  request.kind = static_cast<EscalationKind>(known - policy::kEscalationKindNames.begin());
  const size_t second = std::min(rest.find(' '), rest.size());
  request.what = std::string(rest.substr(0, second));
  request.reason = std::string(rest.substr(std::min(second + 1, rest.size())));
  if (request.what.empty()) return Error::Invalid("the second word must say what is asked for");
  if (request.what.size() > kMaxWhatBytes || request.reason.size() > kMaxReasonBytes)
    return Error::Invalid("what is asked for, or its reason, is too long");
  // The approver reads both. What a terminal would obey has no place in either.
  if (EscapeForTerminal(request.what) != request.what || EscapeForTerminal(request.reason) != request.reason)
    return Error::Invalid("only printable text can be asked for");
  return request;
}

Result<AskEffect> JudgeAsk(const AskRequest& request, const policy::Profile& profile) {
  AskEffect effect;
  effect.escalation = profile.approvals.of(request.kind);
  if (effect.escalation == Escalation::kDeny) return Error::Denied(HowToOpen(request.kind, request.what));
  if (request.kind == EscalationKind::kTime) {
    const Result<int64_t> more = ParseDuration(request.what);
    if (!more || *more < 1 || *more > kMostMoreMs)
      return Error::Invalid(Quoted(request.what) + " is no time such as 30m, up to 24h");
    effect.more_ms = *more;
    return effect;
  }
  if (profile.network.mode != policy::NetworkMode::kAllowlist)
    return Error::Denied("this session was opened without a network; ask for one opened with --ask or --allow-domain " +
                         request.what);
  const std::string entry =
      request.kind == EscalationKind::kInstall ? "class:packages:" + Lower(request.what) : Lower(request.what);
  CAISSON_TRY_VOID(AddDestination(entry, profile, effect));
  return effect;
}

}  // namespace caisson::session
