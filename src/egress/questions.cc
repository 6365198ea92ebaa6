#include "egress/questions.h"

#include "base/clock.h"

namespace caisson::egress {

using control::Verdict;

Questions::State Questions::Ask(const std::string& name, uint16_t port, const char* protocol, uint32_t connection) {
  const auto key = std::make_pair(name, port);
  const auto known = questions_.find(key);
  if (known != questions_.end() && !known->second.pending) {
    const uint8_t scope = known->second.scope;
    if (scope == Verdict::kOnce) questions_.erase(known);  // used up; the next connection is asked about again
    return scope == Verdict::kDeny ? State::kDenied : State::kAllowed;
  }
  if (known == questions_.end() && (!attended() || questions_.size() >= kMaxQuestions)) return State::kDenied;
  One& one = questions_[key];
  one.waiting.insert(connection);
  if (known != questions_.end()) return State::kPending;
  one.id = next_id_++;
  one.until = MonotonicNanos() + int64_t{wait_ms_} * 1'000'000;
  control::Ask ask;
  ask.id = one.id;
  ask.port = port;
  ask.name = name;
  ask.protocol = protocol;
  events_.Send(control::Pack(ask));
  SetNextDeadline();
  return State::kPending;
}

void Questions::Leave(const std::string& name, uint16_t port, uint32_t connection) {
  const auto known = questions_.find({name, port});
  if (known != questions_.end()) known->second.waiting.erase(connection);
}

void Questions::Decide(One& one, uint8_t scope) {
  one.pending = false;
  one.scope = scope;
  const std::set<uint32_t> waiting = std::move(one.waiting);
  one.waiting.clear();
  const bool allowed = scope == Verdict::kOnce || scope == Verdict::kSession;
  for (const uint32_t connection : waiting) on_decided_(connection, allowed);
}

void Questions::Take(const Verdict& verdict) {
  for (auto at = questions_.begin(); at != questions_.end(); ++at) {
    One& one = at->second;
    if (one.id != verdict.id || !one.pending) continue;
    const bool is_used = !one.waiting.empty();
    Decide(one, verdict.scope <= Verdict::kDenyOnce ? verdict.scope : static_cast<uint8_t>(Verdict::kDeny));
    // Without a connection that waited, the next one may use an approval.
    if ((is_used && one.scope == Verdict::kOnce) || one.scope == Verdict::kDenyOnce) questions_.erase(at);
    break;
  }
  SetNextDeadline();
}

void Questions::Expired() {
  const int64_t now = MonotonicNanos();
  for (auto& [key, one] : questions_) {
    if (one.pending && one.until <= now) Decide(one, Verdict::kDeny);
  }
  SetNextDeadline();
}

void Questions::SetNextDeadline() {
  int64_t next = 0;
  for (const auto& [key, one] : questions_) {
    if (one.pending && (next == 0 || one.until < next)) next = one.until;
  }
  loop_.SetDeadline(*this, next);
}

}  // namespace caisson::egress
