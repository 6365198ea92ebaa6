// The supervisor's approvals: what a person is asked about, and what happens with the answer.
//
// SECURITY: answers come over control.sock, which only the session's user can reach and which no program inside sees.
// Questions are shown by clients, on their own side; the supervisor writes nothing of them into a command's streams.
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/units.h"
#include "session/supervisor.h"
#include "verify/json_fields.h"

namespace caisson::session {

using nlohmann::json;
using Scope = NetworkAnswer::Scope;

namespace {

int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

json MembersOf(const Approval& approval) {
  json members = {{"approval_id", approval.id},
                  {"kind", policy::NameOf(approval.request.kind)},
                  {"what", approval.request.what},
                  {"token", approval.token}};
  if (approval.of_connection()) members["protocol"] = approval.protocol;
  if (!approval.request.reason.empty()) members["request_reason"] = approval.request.reason;
  return members;
}

// By the policy as it is now, which may be another one than when the question was asked.
Result<AskEffect> JudgeApproval(const Approval& approval, const policy::Profile& profile) {
  if (!approval.of_connection()) return JudgeAsk(approval.request, profile);
  if (!profile.network.ask) return Error::Denied("the policy asks about no further hosts (network.ask)");
  if (IsDenied(profile.network, approval.host, approval.port)) return Error::Denied("a rule of the policy denies it");
  return AskEffect();
}

}  // namespace

// An unlisted destination: the connection waits, and nothing of it has left.
void Supervisor::AskAboutConnection(const NetworkQuestion& question) {
  Approval approval;
  approval.request.kind = policy::EscalationKind::kNetwork;
  approval.request.what = question.name + ":" + std::to_string(question.port);
  approval.protocol = question.protocol;
  approval.question = question.id;
  approval.host = question.name;
  approval.port = question.port;
  const auto deny = [&](Scope scope, const char* why) {
    std::fprintf(stderr, "%s %s: %s\n", UtcNow().c_str(), approval.request.what.c_str(), why);
    if (const Status denied = run_->AnswerNetwork({question.id, scope}); !denied) Finish(denied.error().message, true);
  };
  if (!approvals_->MayAsk(NowMs())) return deny(Scope::kDenyOnce, "too many questions in a minute");
  const Result<JudgedPolicy> policy = JudgePolicy(request_, directory_, *runtimes_);
  if (!policy) return deny(Scope::kDenyOnce, policy.error().message.c_str());
  if (!JudgeApproval(approval, policy->profile)) return deny(Scope::kDeny, "a rule of the policy denies it");
  if (Ask(std::move(approval), policy->digest) == nullptr) deny(Scope::kDenyOnce, "the event cannot be written");
}

// nullptr: the question is not recorded, so it is not asked.
Approval* Supervisor::Ask(Approval approval, const std::string& policy_digest) {
  Approval& added = approvals_->Add(std::move(approval), policy_digest, NowMs(), UnixMillis());
  json members = MembersOf(added);
  members["expires_at"] = added.expires_at;
  if (!Note(SessionEventType::kApprovalRequested, std::move(members))) {
    approvals_->Take(added.id);
    return nullptr;
  }
  if (CAISSON_LEFT_OUT("prompt_channel")) {
    for (auto& [number, command] : commands_) {
      if (command->running()) OnOutput(*command, false, "caisson: " + TextOf(added) + ". Allow it? ");
    }
  }
  TellOfApproval({{"event", "approval"}, {"approval", ToJson(added, record_.id)}, {"text", TextOf(added)}});
  return &added;
}

void Supervisor::TellOfApproval(const json& event) {
  for (const auto& [client, connection] : connections_) {
    if (!connection.commands.empty()) Send(client, event);
  }
}

Supervisor::Reply Supervisor::ListApprovals() const {
  json list = json::array();
  for (const auto& [id, approval] : approvals_->all()) {
    json document = ToJson(approval, record_.id);
    list.push_back({{"approval", std::move(document)}, {"text", TextOf(approval)}});
  }
  return json{{"approvals", std::move(list)}};
}

Result<Approval*> Supervisor::FindApproval(const json& message) {
  CAISSON_TRY(const std::string id, verify::ReadRequired(message, "", "approval", verify::ReadString));
  Approval* approval = approvals_->Find(id);
  if (approval == nullptr)
    return Error::NotFound("no question " + id + " waits for an answer: it was answered, or its time is over");
  return approval;
}

Supervisor::Reply Supervisor::Approve(uint64_t client, const json& message) {
  CAISSON_TRY(Approval* const waiting, FindApproval(message));
  std::string scope = "once";
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "scope", scope, verify::ReadString));
  if (scope != "once" && scope != "session") return Error::Invalid("scope: expected once or session");
  // What a program asked for holds until the session ends; one connection has one destination.
  if (!waiting->of_connection()) scope = "session";
  CAISSON_TRY(const JudgedPolicy policy, JudgePolicy(request_, directory_, *runtimes_));
  const bool bound = TokenOf(*waiting, record_.id, policy.digest) == waiting->token;
  Result<AskEffect> effect = JudgeApproval(*waiting, policy.profile);
  if (!effect) {
    const Approval taken = approvals_->Take(waiting->id);
    (void)CloseApproval(taken, SessionEventType::kApprovalDenied, {{"reason", effect.error().message}});
    Refuse(taken, Scope::kDeny, effect.error().message);
    return Error::Conflict("the policy denies it now: " + effect.error().message);
  }
  if (!bound && !CAISSON_LEFT_OUT("bound_approval")) {
    Approval again = approvals_->Take(waiting->id);
    (void)CloseApproval(again, SessionEventType::kApprovalExpired, {{"reason", "policy_changed"}});
    const Approval* asked = Ask(again, policy.digest);
    if (asked == nullptr) {
      Refuse(again, Scope::kDenyOnce, "the question could not be recorded");
      return Error::Denied("the question could not be recorded, so it is denied");
    }
    return Error::Conflict("the policy changed since this was asked, so it is asked again, as " + asked->id);
  }
  const Connection& by = connections_.at(client);
  const Approval approval = approvals_->Take(waiting->id);
  // On the disk before it holds.
  const Status noted = CloseApproval(approval, SessionEventType::kApprovalGranted,
                                     {{"scope", scope}, {"by", {{"uid", by.uid}, {"pid", by.pid}}}});
  const Status granted =
      noted ? Grant(approval, *effect, scope == "session" ? Scope::kSession : Scope::kOnce) : Status(noted.error());
  if (!granted) {
    (void)Note(SessionEventType::kApprovalDenied, {{"approval_id", approval.id}, {"reason", granted.error().message}});
    Refuse(approval, Scope::kDenyOnce, granted.error().message);
    return granted.error();
  }
  for (const uint64_t asker : approval.askers) AnswerAsker(asker, true, approval.request.what);
  return json{{"approval_id", approval.id}, {"state", "granted"}, {"scope", scope}};
}

Supervisor::Reply Supervisor::Deny(uint64_t client, const json& message) {
  CAISSON_TRY(Approval* const waiting, FindApproval(message));
  std::string reason;
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "reason", reason, verify::ReadSentence, 500));
  const Connection& by = connections_.at(client);
  const Approval approval = approvals_->Take(waiting->id);
  // A denial holds although it may not be recorded.
  const Status noted = CloseApproval(approval, SessionEventType::kApprovalDenied,
                                     {{"reason", reason}, {"by", {{"uid", by.uid}, {"pid", by.pid}}}});
  Refuse(approval, Scope::kDeny, reason.empty() ? "the approver denied it" : "the approver denied it: " + reason);
  CAISSON_TRY_VOID(noted);
  return json{{"approval_id", approval.id}, {"state", "denied"}};
}

Status Supervisor::CloseApproval(const Approval& approval, SessionEventType type, json members) {
  TellOfApproval({{"event", "approval_closed"}, {"approval_id", approval.id}});
  members.update(MembersOf(approval));
  return Note(type, std::move(members));
}

Status Supervisor::Grant(const Approval& approval, const AskEffect& effect, Scope scope) {
  if (approval.of_connection()) return run_->AnswerNetwork({approval.question, scope});
  if (effect.more_ms > 0) {
    const int64_t ttl_ms = record_.ttl_ms + effect.more_ms;
    if (ttl_ms > most_ttl_ms_)
      return Error::Denied("the profile allows a session at most " + FormatDuration(most_ttl_ms_));
    record_.ttl_ms = ttl_ms;
    record_.expires_at = UtcTime(UnixMillis() + opened_ms_ + ttl_ms - NowMs());
  }
  for (const network::RuleText& rule : effect.rules)
    CAISSON_TRY_VOID(run_->AllowNetwork(rule.text, "approval " + approval.id + " (" + rule.text + ")"));
  for (const std::string& entry : effect.entries) {
    profile_.network.allow.push_back(entry);
    record_.allow.push_back(entry);
  }
  SaveRecord();
  return {};
}

// The decision is made; tells who waits for it.
void Supervisor::Refuse(const Approval& approval, Scope scope, const std::string& why) {
  for (const uint64_t asker : approval.askers) AnswerAsker(asker, false, why);
  if (!approval.of_connection() || finished_) return;
  if (const Status denied = run_->AnswerNetwork({approval.question, scope}); !denied)
    Finish(denied.error().message, true);
}

void Supervisor::ExpireApprovals() {
  for (const Approval& approval : approvals_->TakeExpired(NowMs())) {
    (void)CloseApproval(approval, SessionEventType::kApprovalExpired, {{"reason", "no_answer"}});
    Refuse(approval, Scope::kDenyOnce, "no answer came within " + FormatDuration(approvals_->wait_ms()));
  }
}

void Supervisor::EndApprovals() {
  for (const Approval& approval : approvals_->TakeAll()) {
    (void)CloseApproval(approval, SessionEventType::kApprovalExpired, {{"reason", "session_ended"}});
    Refuse(approval, Scope::kDeny, "the session ended");
  }
}

}  // namespace caisson::session
