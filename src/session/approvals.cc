#include "session/approvals.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "verify/digest.h"

namespace caisson::session {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {
constexpr int64_t kMinuteMs = 60'000;
constexpr size_t kIdDigits = 16;
}  // namespace

ordered_json ToJson(const Approval& approval, const std::string& session_id) {
  return {{"schema_version", 1},
          {"approval_id", approval.id},
          {"session_id", session_id},
          {"state", "pending"},
          {"kind", policy::NameOf(approval.request.kind)},
          {"what", ReplaceInvalidUtf8(approval.request.what)},
          {"protocol", approval.of_connection() ? ordered_json(approval.protocol) : ordered_json()},
          {"reason", ReplaceInvalidUtf8(approval.request.reason)},
          {"token", approval.token},
          {"requested_at", approval.requested_at},
          {"expires_at", approval.expires_at}};
}

// SECURITY: the workload chose the words; what a terminal would obey is shown as text.
std::string TextOf(const Approval& approval) {
  const std::string what = EscapeForTerminal(approval.request.what);
  std::string text;
  switch (approval.request.kind) {
    case policy::EscalationKind::kNetwork:
      text = "a program wants to reach " + what;
      break;
    case policy::EscalationKind::kInstall:
      text = "a program wants to install packages from " + what;
      break;
    case policy::EscalationKind::kTime:
      text = "a program wants the session to last " + what + " longer";
      break;
    default:
      text = std::string("a program asks for ") + policy::NameOf(approval.request.kind) + " " + what;
      break;
  }
  if (approval.of_connection()) text += " (" + EscapeForTerminal(approval.protocol) + "), which no rule lists";
  if (!approval.request.reason.empty()) text += "; it says: \"" + EscapeForTerminal(approval.request.reason) + "\"";
  return text;
}

std::string TokenOf(const Approval& approval, const std::string& session_id, const std::string& policy_digest) {
  const json bound = {{"policy", policy_digest},       {"session", session_id},
                      {"number", approval.number},     {"kind", policy::NameOf(approval.request.kind)},
                      {"what", approval.request.what}, {"protocol", approval.protocol}};
  return verify::Sha256Hex(bound.dump(-1, ' ', false, json::error_handler_t::replace));
}

Approval* Approvals::FindEqual(const AskRequest& request, const std::string& protocol) {
  for (auto& [id, approval] : waiting_) {
    if (approval.request.kind == request.kind && approval.request.what == request.what && approval.protocol == protocol)
      return &approval;
  }
  return nullptr;
}

bool Approvals::MayAsk(int64_t now_ms) {
  while (!asked_at_.empty() && asked_at_.front() + kMinuteMs <= now_ms) asked_at_.pop_front();
  if (asked_at_.size() >= kMostInAMinute) return false;
  asked_at_.push_back(now_ms);
  return true;
}

Approval& Approvals::Add(Approval approval, const std::string& policy_digest, int64_t now_ms, int64_t unix_ms) {
  approval.number = ++last_number_;
  approval.token = TokenOf(approval, session_id_, policy_digest);
  approval.id = "apr_" + approval.token.substr(0, kIdDigits);
  approval.expires_ms = now_ms + wait_ms_;
  approval.requested_at = UtcTime(unix_ms);
  approval.expires_at = UtcTime(unix_ms + wait_ms_);
  const std::string id = approval.id;
  return waiting_[id] = std::move(approval);
}

Approval* Approvals::Find(const std::string& id) {
  const auto found = waiting_.find(id);
  return found == waiting_.end() ? nullptr : &found->second;
}

Approval Approvals::Take(const std::string& id) {
  const auto found = waiting_.find(id);
  CAISSON_CHECK(found != waiting_.end());
  Approval taken = std::move(found->second);
  waiting_.erase(found);
  return taken;
}

std::vector<Approval> Approvals::TakeExpired(int64_t now_ms) {
  std::vector<Approval> expired;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.expires_ms > now_ms) {
      ++at;
      continue;
    }
    expired.push_back(std::move(at->second));
    at = waiting_.erase(at);
  }
  return expired;
}

std::vector<Approval> Approvals::TakeAll() {
  std::vector<Approval> all;
  for (auto& [id, approval] : waiting_) all.push_back(std::move(approval));
  waiting_.clear();
  return all;
}

std::optional<int64_t> Approvals::next_expiry_ms() const {
  std::optional<int64_t> next;
  for (const auto& [id, approval] : waiting_) next = std::min(next.value_or(approval.expires_ms), approval.expires_ms);
  return next;
}

}  // namespace caisson::session
