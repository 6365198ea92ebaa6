// caisson status, list, result, cancel, artifacts: jobs at the service.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/percent.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/result_text.h"
#include "cli/service_access.h"
#include "linux/files.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Error::System(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

void PrintJobLine(const json& job) {
  std::string labels;
  if (const auto found = job.find("labels"); found != job.end() && found->is_object()) {
    for (const auto& [key, value] : found->items())
      labels += (labels.empty() ? "" : ",") + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  std::printf("%-32s  %-17s  %-9s  %-24s  %s  %s\n", Shown(job, "job_id").c_str(), Shown(job, "state").c_str(),
              Shown(job, "status").c_str(), Shown(job, "submitted_at").c_str(), Shown(job, "request_id").c_str(),
              EscapeForTerminal(labels).c_str());
}

}  // namespace

int StatusCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id;
  CLI::App app("The state of a job.\nUsage: caisson status JOB", "status");
  AddServiceFlags(app, flags, "\nExample:\n  caisson status 0193a5c2");
  app.add_option("JOB", job_id, "The job's id, as submit printed it")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    CAISSON_TRY(const json job, client.Json(Get(JobTarget(job_id))));
    if (flags.json) {
      PrintJson(job);
      return 0;
    }
    std::printf("%s  %s\n", Shown(job, "job_id").c_str(), Shown(job, "state").c_str());
    PrintFields(job, {"status", "failure_class", "request_id", "tenant", "submitter", "attempt", "max_attempts",
                      "priority", "submitted_at", "not_before", "started_at", "finished_at", "deadline", "worker",
                      "approval_id", "cancel_reason", "idempotency_key"});
    for (const json& attempt : job.value("attempts", json::array())) {
      std::printf("  attempt %s ended without a verdict (%s): %s\n", Shown(attempt, "attempt").c_str(),
                  Shown(attempt, "cause").c_str(), Shown(attempt, "error").c_str());
    }
    return 0;
  });
}

int ListCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string state, request_id, label, tenant;
  int64_t limit = 20;
  CLI::App app("Jobs, newest first.\nUsage: caisson list [flags]", "list");
  AddServiceFlags(app, flags, R"(
Examples:
  caisson list --state queued,running
  caisson list --label student=42 --limit 100 --json)");
  app.add_option("--state", state, "Only in these states, with commas");
  app.add_option("--request-id", request_id, "Only of this request");
  app.add_option("--label", label, "Only with this label")->type_name("KEY=VALUE");
  app.add_option("--tenant", tenant, "Only of this tenant (admins see all)");
  app.add_option("--limit", limit, "At most this many")->check(CLI::Range(1, 1000));
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  std::string target = "/v1/jobs?limit=" + std::to_string(limit);
  for (const auto& [name, value] : {std::pair<const char*, const std::string&>{"state", state},
                                    {"request_id", request_id},
                                    {"label", label},
                                    {"tenant", tenant}})
    if (!value.empty()) target += "&" + std::string(name) + "=" + PercentEncode(value);
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    CAISSON_TRY(const json page, client.Json(Get(target)));
    if (flags.json) {
      PrintJson(page);
      return 0;
    }
    for (const json& job : page.value("jobs", json::array())) PrintJobLine(job);
    if (page.contains("next_cursor")) std::fputs("… and more (--limit)\n", stderr);
    return 0;
  });
}

int ResultCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id, wait;
  CLI::App app("The result of a job.\nUsage: caisson result [--wait 30s] JOB", "result");
  AddServiceFlags(app, flags, R"(
Exit codes: 0 pass, 1 fail, 3 rejected by policy, 4 infrastructure error, 5 no result yet.

Example:
  caisson result --wait 60s --json "$job" > verification_result.json)");
  app.add_option("--wait", wait, "Wait for it, at most a minute")->type_name("TIME");
  app.add_option("JOB", job_id, "The job's id")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    const std::string query = wait.empty() ? "" : "?wait=" + PercentEncode(wait);
    CAISSON_TRY(const json result, client.Json(Get(JobTarget(job_id, "/result" + query))));
    CAISSON_TRY(const int exit_code, ExitCodeOf(result));
    if (flags.json)
      PrintJson(result);
    else
      PrintResult(result, job_id);
    return exit_code;
  });
}

int CancelCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id, reason;
  CLI::App app("Stop a job, or prevent its start.\nUsage: caisson cancel [--reason TEXT] JOB", "cancel");
  AddServiceFlags(app, flags, "");
  app.add_option("--reason", reason, "Why, for the audit log");
  app.add_option("JOB", job_id, "The job's id")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    const json body = reason.empty() ? json(nullptr) : json{{"reason", reason}};
    CAISSON_TRY(const json job, client.Json(Post(JobTarget(job_id, ":cancel"), body)));
    if (flags.json)
      PrintJson(job);
    else
      std::printf("%s  %s\n", Shown(job, "job_id").c_str(),
                  Shown(job, "state") == "cancelled" ? "cancelled" : "is being stopped");
    return 0;
  });
}

int ArtifactsCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id, path, output;
  CLI::App app("Files that a job left.\nUsage: caisson artifacts list JOB | get JOB PATH [-o FILE]", "artifacts");
  app.set_help_flag("--help,-h", "Show this help");
  CLI::App* list = app.add_subcommand("list", "The artifacts of a job");
  CLI::App* get = app.add_subcommand("get", "One artifact, to a file");
  for (CLI::App* command : {list, get}) {
    AddServiceFlags(*command, flags, "\nExample:\n  caisson artifacts get \"$job\" /scratch/report.xml -o report.xml");
    command->add_option("JOB", job_id, "The job's id")->required();
  }
  get->add_option("PATH", path, "As the result names it, for example /scratch/report.xml")->required();
  get->add_option("-o,--output", output, "Output file; - for standard output (default: the path's last part)");
  app.require_subcommand(1);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    if (list->parsed()) {
      CAISSON_TRY(const json result, client.Json(Get(JobTarget(job_id, "/result"))));
      const json artifacts = result.value("artifacts", json::array());
      if (flags.json) PrintJson(artifacts);
      for (const json& one : artifacts) {
        if (flags.json) break;
        std::printf("%s  %10s  %s\n", Shown(one, "sha256").c_str(), Shown(one, "bytes").c_str(),
                    Shown(one, "path").c_str());
      }
      return 0;
    }
    if (output.empty()) output = path.substr(path.rfind('/') + 1);
    UniqueFd file;
    if (output != "-") {
      CAISSON_TRY(file, linux_sys::OpenOutput(output, O_TRUNC));
    }
    const int fd = output == "-" ? STDOUT_FILENO : file.get();
    CAISSON_TRY_VOID(client.Stream(Get(JobTarget(job_id, "/artifacts/" + PercentEncode(path))),
                                   [&](std::string_view bytes) { return WriteAll(fd, bytes); }));
    return 0;
  });
}

}  // namespace caisson::cli
