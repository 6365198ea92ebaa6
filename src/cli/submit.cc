// caisson submit: sends a verification to the service, and waits for its result with --wait.
#include <cstdio>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "cli/result_text.h"
#include "cli/service_access.h"
#include "cli/service_job.h"
#include "verify/request.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

constexpr char kFooter[] = R"(
PATH is a Python file, a directory or an archive of one (.tar.gz, .zip …), which is sent along; a name that ends in .json
is a request, and its source.path is sent along too. Without --wait the command prints the job's id for caisson status,
events, logs and result.

Exit codes with --wait: 0 pass, 1 fail, 3 rejected by policy, 4 infrastructure error; without: 0 if the job was accepted.

Examples:
  caisson submit --wait answer.py
  caisson submit --label student=42 --priority 10 project/
  job=$(caisson submit request.json) && caisson logs -f "$job"
  caisson submit --key "$CI_JOB_ID" --wait --json tests/      # sent twice, run once)";

struct SubmitFlags {
  ServiceFlags service;
  std::string path, mode, profile, key, deadline;
  std::vector<std::string> labels, artifacts;
  int64_t priority = 0;
  bool wait = false, quiet = false;
};

Result<Shipment> MakeShipment(const SubmitFlags& flags) {
  Result<Shipment> packed = PackShipment(flags.path);
  // The caller must change a request that cannot be sent.
  if (!packed && packed.error().kind == ErrorKind::kUnsupported) return Error::Invalid(packed.error().message);
  if (!packed) return packed;
  json& request = packed->request;
  if (!flags.mode.empty()) request["mode"] = flags.mode;
  if (!flags.profile.empty()) request["profile"] = flags.profile;
  if (!flags.deadline.empty()) request["deadline"] = flags.deadline;
  if (flags.priority != 0) request["priority"] = flags.priority;
  for (const std::string& glob : flags.artifacts) request["artifacts"].push_back(glob);
  for (const std::string& label : flags.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos) return Error::Invalid("--label " + label + ": expected KEY=VALUE");
    request["labels"][label.substr(0, equals)] = label.substr(equals + 1);
  }
  if (!flags.key.empty()) request["idempotency_key"] = flags.key;
  EnsureKey(request);
  if (Result<verify::Request> judged = verify::ReadRequest(request, ""); !judged) return std::move(judged).error();
  return packed;
}

Result<int> AwaitAndPrint(const client::Client& client, const std::string& job_id, const SubmitFlags& flags) {
  Progress progress(flags.quiet, flags.service.json);
  CAISSON_TRY(const json result, AwaitResult(client, job_id, [&](const json& event) { progress.On(event); }));
  progress.Clear();
  CAISSON_TRY(const int exit_code, ExitCodeOf(result));
  if (flags.service.json)
    PrintJson(result);
  else if (!flags.quiet)
    PrintResult(result, flags.path);
  return exit_code;
}

}  // namespace

int SubmitCommand(std::vector<std::string> arguments) {
  SubmitFlags flags;
  CLI::App app("Submit a verification to the service.\nUsage: caisson submit [flags] PATH|REQUEST.json", "submit");
  AddServiceFlags(app, flags.service, kFooter);
  app.add_flag("--wait,-w", flags.wait, "Wait for the end, show what happens, and print the result");
  app.add_flag("--quiet,-q", flags.quiet, "Print only errors");
  app.add_option("--mode", flags.mode, "balanced or strict")->check(CLI::IsMember({"balanced", "strict"}));
  app.add_option("--profile", flags.profile, "Isolation profile");
  app.add_option("--key", flags.key, "Idempotency key: the same key and request again give the same job");
  app.add_option("--label", flags.labels, "KEY=VALUE, to find it by (repeatable)")->allow_extra_args(false);
  app.add_option("--artifact", flags.artifacts, "Collect files that match the glob (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--priority", flags.priority, "-100 to 100; higher runs earlier");
  app.add_option("--deadline", flags.deadline, "RFC 3339 time after which the result is useless");
  app.add_option("PATH", flags.path, "A Python file, a directory, an archive, or a request (*.json)")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;

  const Result<Shipment> shipment = MakeShipment(flags);
  if (!shipment) return Report(shipment.error());
  return WithService(flags.service, [&](const client::Client& client) -> Result<int> {
    CAISSON_TRY(const json job, SendShipment(client, *shipment));
    const std::string job_id = Shown(job, "job_id");
    if (flags.wait) return AwaitAndPrint(client, job_id, flags);
    if (flags.service.json)
      PrintJson(job);
    else if (!flags.quiet)
      std::puts(job_id.c_str());
    return 0;
  });
}

}  // namespace caisson::cli
