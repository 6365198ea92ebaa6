// Approvals and dead letters.
#include <nlohmann/json.hpp>

#include "service/http/documents.h"
#include "service/http/problem.h"
#include "service/http/routes.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"

namespace caisson::service::http {

namespace {

using nlohmann::json;

struct AnswerBody {
  std::string plan_digest, nonce, reason;
};

Result<AnswerBody> ReadAnswer(const json& body) {
  AnswerBody answer;
  CAISSON_TRY_VOID(verify::ExpectObject(body, "", {"plan_digest", "nonce", "reason"}));
  CAISSON_TRY(answer.plan_digest, verify::ReadRequired(body, "", "plan_digest", verify::ReadSha256));
  CAISSON_TRY(answer.nonce, verify::ReadRequired(body, "", "nonce", verify::ReadWord, "", size_t{64}));
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "reason", answer.reason, verify::ReadSentence, size_t{512}));
  return answer;
}

Answer AnswerApproval(const Call& call, bool grant) {
  const Result<json> body = verify::ReadJson(call.request.body, {});
  if (!body) return Problem(400, body.error().message);
  const Result<AnswerBody> answer = ReadAnswer(*body);
  if (!answer) return Problem(answer.error());
  if (!grant && answer->reason.empty()) return Problem(422, "reason: a denial needs a reason", "reason");
  const Result<store::Approval> approval =
      call.service.Answer(*call.caller, call.path[0], grant, answer->plan_digest, answer->nonce, answer->reason);
  if (!approval) return Problem(approval.error());
  return Json(200, ToJson(*approval));
}

}  // namespace

Answer ListApprovals(const Call& call) {
  std::optional<store::ApprovalState> state;
  if (const auto text = call.query.Text("state")) {
    for (size_t i = 0; i < store::kApprovalStateNames.size(); ++i)
      if (*text == store::kApprovalStateNames[i]) state = static_cast<store::ApprovalState>(i);
    if (!state) return Problem(400, "state: is none of pending, granted, denied, expired", "state");
  }
  const Result<std::vector<store::Approval>> approvals = call.service.Approvals(*call.caller, state);
  if (!approvals) return Problem(approvals.error());
  json list = json::array();
  for (const store::Approval& approval : *approvals) list.push_back(ToJson(approval));
  return Json(200, {{"approvals", std::move(list)}});
}

Answer ShowApproval(const Call& call) {
  const Result<store::Approval> approval = call.service.FindApproval(*call.caller, call.path[0]);
  if (!approval) return Problem(approval.error());
  return Json(200, ToJson(*approval));
}

Answer GrantApproval(const Call& call) { return AnswerApproval(call, true); }
Answer DenyApproval(const Call& call) { return AnswerApproval(call, false); }

Answer ShowDeadLetter(const Call& call) {
  Result<std::string> letter = call.service.DeadLetter(*call.caller, call.path[0]);
  if (!letter) return Problem(letter.error());
  return JsonText(200, *std::move(letter));
}

Answer RequeueDeadLetter(const Call& call) {
  const Result<store::Job> job = call.service.Requeue(*call.caller, call.path[0]);
  if (!job) return Problem(job.error());
  Response response = Json(202, ToJson(*job));
  response.fields.emplace_back("Location", "/v1/jobs/" + job->id);
  return response;
}

Answer DropDeadLetter(const Call& call) {
  const Status dropped = call.service.Drop(*call.caller, call.path[0]);
  if (!dropped) return Problem(dropped.error());
  return Plain(204, "application/json", "");
}

}  // namespace caisson::service::http
