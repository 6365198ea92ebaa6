// caisson approvals, dlq: approvals and dead letters.
#include <unistd.h>

#include <cstdio>

#include "base/percent.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/service_access.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

constexpr char kApprovalsFooter[] = R"(
An approval is for one plan: the request, its source and the policy it is judged by. grant and deny send the digest of
the plan that was shown; they are refused if the plan has changed meanwhile.

Examples:
  caisson approvals list
  caisson approvals show APPROVAL
  caisson approvals grant APPROVAL --plan DIGEST --reason "reviewed in #42"
  caisson approvals deny APPROVAL --reason "writes to the home directory"

Questions of a session on this machine: caisson session approvals)";

std::string ApprovalTarget(const std::string& id, const std::string& rest = "") {
  return "/v1/approvals/" + PercentEncode(id) + rest;
}

void PrintApproval(const json& approval) {
  std::printf("%s  %s\n", Shown(approval, "approval_id").c_str(), Shown(approval, "state").c_str());
  PrintFields(approval, {"job_id", "tenant", "plan_digest", "quorum", "requested_at", "expires_at"});
  const json question = approval.value("question", json::object());
  if (!question.is_object()) return;
  if (const auto submitter = question.find("submitter"); submitter != question.end())
    std::printf("  %-16s %s\n", "submitter", Shown(*submitter, "subject").c_str());
  for (const json& required : question.value("required", json::array()))
    std::printf("  asks for %s: %s\n", Shown(required, "kind").c_str(), Shown(required, "why").c_str());
  for (const json& answer : approval.value("answers", json::array()))
    std::printf("  %s by %s  %s\n", Shown(answer, "decision").c_str(), Shown(answer, "approver").c_str(),
                Shown(answer, "reason").c_str());
}

Result<int> ListApprovals(const client::Client& client, const std::string& state, bool as_json) {
  CAISSON_TRY(const json page, client.Json(Get("/v1/approvals" + (state.empty() ? "" : "?state=" + state))));
  if (as_json) {
    PrintJson(page);
    return 0;
  }
  for (const json& approval : page.value("approvals", json::array()))
    std::printf("%-32s  %-8s  %-32s  %s\n", Shown(approval, "approval_id").c_str(), Shown(approval, "state").c_str(),
                Shown(approval, "job_id").c_str(), Shown(approval, "expires_at").c_str());
  return 0;
}

bool Confirm(const char* question) {
  std::fprintf(stderr, "%s [y/N] ", question);
  char answer[8] = "";
  return std::fgets(answer, sizeof(answer), stdin) != nullptr && (answer[0] == 'y' || answer[0] == 'Y');
}

struct AnswerFlags {
  std::string id, plan, reason;
  bool grant = false;
};

Result<int> AnswerApproval(const client::Client& client, const AnswerFlags& flags, bool as_json) {
  CAISSON_TRY(const json approval, client.Json(Get(ApprovalTarget(flags.id))));
  std::string plan = flags.plan;
  if (plan.empty()) {
    // SECURITY: an approver who does not name the plan is shown the plan that the answer applies to.
    plan = approval.value("plan_digest", "");
    if (flags.grant) {
      if (::isatty(STDIN_FILENO) == 0)
        return Error::Invalid("grant: name the plan that was read (--plan DIGEST, see: caisson approvals show " +
                              flags.id + ")");
      PrintApproval(approval);
      if (!Confirm("Grant it?")) return kExitRefused;
    }
  }
  const json question = approval.value("question", json::object());
  json body = {{"plan_digest", plan}, {"nonce", question.is_object() ? question.value("nonce", "") : ""}};
  if (!flags.reason.empty()) body["reason"] = flags.reason;
  CAISSON_TRY(const json answered, client.Json(Post(ApprovalTarget(flags.id, flags.grant ? ":grant" : ":deny"), body)));
  if (as_json)
    PrintJson(answered);
  else
    std::printf("%s  %s\n", Shown(answered, "approval_id").c_str(), Shown(answered, "state").c_str());
  return 0;
}

}  // namespace

int ApprovalsCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  AnswerFlags answer;
  std::string state = "pending";
  CLI::App app("Approvals.\nUsage: caisson approvals list | show | grant | deny", "approvals");
  app.set_help_flag("--help,-h", "Show this help");
  app.footer(kApprovalsFooter);
  CLI::App* list = app.add_subcommand("list", "Pending approvals, or others with --state");
  CLI::App* show = app.add_subcommand("show", "The plan and the reasons");
  CLI::App* grant = app.add_subcommand("grant", "Let the job run");
  CLI::App* deny = app.add_subcommand("deny", "Reject the job");
  for (CLI::App* command : {list, show, grant, deny}) AddServiceFlags(*command, flags, kApprovalsFooter);
  list->add_option("--state", state, "pending, granted, denied, expired")
      ->check(CLI::IsMember({"pending", "granted", "denied", "expired"}));
  for (CLI::App* command : {show, grant, deny}) command->add_option("APPROVAL", answer.id, "Its id")->required();
  for (CLI::App* command : {grant, deny})
    command->add_option("--plan", answer.plan, "Digest of the plan that was read")->type_name("SHA256");
  grant->add_option("--reason", answer.reason, "Why, for the audit log");
  deny->add_option("--reason", answer.reason, "Why, for the submitter and the audit log")->required();
  app.require_subcommand(1);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    if (list->parsed()) return ListApprovals(client, state, flags.json);
    if (show->parsed()) {
      CAISSON_TRY(const json approval, client.Json(Get(ApprovalTarget(answer.id))));
      if (flags.json)
        PrintJson(approval);
      else
        PrintApproval(approval);
      return 0;
    }
    answer.grant = grant->parsed();
    return AnswerApproval(client, answer, flags.json);
  });
}

int DlqCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id;
  int64_t limit = 20;
  CLI::App app("Jobs without a verdict after all attempts.\nUsage: caisson dlq list | show | requeue | drop", "dlq");
  app.set_help_flag("--help,-h", "Show this help");
  CLI::App* list = app.add_subcommand("list", "All of them, newest first");
  CLI::App* show = app.add_subcommand("show", "The attempts and how each ended");
  CLI::App* requeue = app.add_subcommand("requeue", "Try it again (needs admin)");
  CLI::App* drop = app.add_subcommand("drop", "Remove it (needs admin)");
  for (CLI::App* command : {list, show, requeue, drop})
    AddServiceFlags(*command, flags,
                    "\nExample:\n  caisson dlq list\n  caisson dlq show JOB\n  caisson dlq requeue JOB");
  list->add_option("--limit", limit, "At most this many")->check(CLI::Range(1, 1000));
  for (CLI::App* command : {show, requeue, drop}) command->add_option("JOB", job_id, "The job's id")->required();
  app.require_subcommand(1);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  const std::string target = "/v1/dlq/" + PercentEncode(job_id);
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    if (drop->parsed()) {
      client::Ask ask = Get(target);
      ask.method = "DELETE";
      CAISSON_TRY_VOID(client.Text(ask));
      return 0;
    }
    CAISSON_TRY(const json document, client.Json(list->parsed()      ? Get("/v1/dlq?limit=" + std::to_string(limit))
                                                 : requeue->parsed() ? Post(target + ":requeue")
                                                                     : Get(target)));
    if (flags.json || show->parsed()) {
      PrintJson(document);
    } else if (requeue->parsed()) {
      std::printf("%s  %s\n", Shown(document, "job_id").c_str(), Shown(document, "state").c_str());
    } else {
      for (const json& job : document.value("jobs", json::array()))
        std::printf("%-32s  %s  %s\n", Shown(job, "job_id").c_str(), Shown(job, "finished_at").c_str(),
                    Shown(job, "request_id").c_str());
    }
    return 0;
  });
}

}  // namespace caisson::cli
