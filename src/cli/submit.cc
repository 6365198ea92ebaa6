// caisson submit: hand a verification to the service, and wait for its result if asked to.
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/request_file.h"
#include "cli/result_text.h"
#include "cli/service_access.h"
#include "client/event_stream.h"
#include "client/pack.h"
#include "verify/digest.h"
#include "verify/json_reader.h"
#include "verify/request.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

constexpr int64_t kRetryForMs = 30'000;

constexpr char kFooter[] = R"(
PATH is a Python file, a directory or an archive of one (.tar.gz, .zip …), which is sent along; anything that ends in
.json is read as a request, and a source.path in it is sent along too. Without --wait the job's id is printed, to be asked for with: caisson status,
events, logs, result.

Exit codes with --wait: 0 pass, 1 fail, 3 rejected by policy, 4 infrastructure error; without: 0 when it was taken.

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

Result<json> ReadRequestDocument(const SubmitFlags& flags) {
  json request = json::object();
  // Its hash stands for it until it is sent.
  if (LooksLikeArchive(flags.path)) {
    CAISSON_TRY(const std::string bytes, ReadRequestFile(flags.path));
    request["source"] = {{"archive", "sha256:" + verify::Sha256Hex(bytes)}};
    return request;
  }
  if (!LooksLikeRequest(flags.path)) {
    CAISSON_TRY(request["source"], client::PackSource(flags.path));
    return request;
  }
  CAISSON_TRY(const std::string text, ReadRequestFile(flags.path));
  verify::JsonBounds bounds;
  bounds.max_bytes = verify::kMaxRequestBytes;
  Result<json> read = verify::ReadJson(text, bounds);
  if (!read) return std::move(read).error().In(flags.path);
  request = *std::move(read);
  // Judged here too: the fault is then told with the file's name, and without a service.
  if (Result<verify::Request> judged = verify::ReadRequest(request, ""); !judged)
    return std::move(judged).error().In(flags.path);
  if (request["source"].contains("path")) {
    const std::string path = request["source"]["path"];
    CAISSON_TRY(request["source"], client::PackSource(PathBesideRequest(flags.path, path)));
  }
  return request;
}

Result<json> MakeRequestDocument(const SubmitFlags& flags) {
  CAISSON_TRY(json request, ReadRequestDocument(flags));
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
  // A lost answer must not make a second job of a second try.
  if (!flags.key.empty())
    request["idempotency_key"] = flags.key;
  else if (!request.contains("idempotency_key"))
    request["idempotency_key"] = verify::GenerateRequestId();
  if (Result<verify::Request> judged = verify::ReadRequest(request, ""); !judged) return std::move(judged).error();
  return request;
}

// Sends it until it is taken or refused for good. A service that restarts or is full is given half a minute.
Result<json> SendRequest(const client::Client& client, const json& request) {
  const client::Ask ask = Post("/v1/jobs", request);
  const int64_t give_up_ns = MonotonicNanos() + kRetryForMs * 1'000'000;
  for (bool reached = false;;) {
    Result<json> job = client.Json(ask);
    if (job) return job;
    const bool full = job.error().kind == ErrorKind::kExhausted;
    reached = reached || full;
    // One that was never there is not waited for.
    const bool again = full || (reached && job.error().kind == ErrorKind::kSystem);
    if (!again || MonotonicNanos() > give_up_ns) return job;
    ::usleep(1'000'000);
  }
}

Status SendArchive(const client::Client& client, const std::string& path) {
  client::Ask ask = Post("/v1/archives");
  CAISSON_TRY(ask.body, ReadRequestFile(path));
  ask.content_type = "application/octet-stream";
  CAISSON_TRY_VOID(client.Text(ask));
  return {};
}

class Progress {
 public:
  explicit Progress(bool silent) : live_(!silent && ::isatty(STDERR_FILENO) != 0) {}
  ~Progress() { Clear(); }

  void On(const json& event) {
    if (!live_) return;
    const std::string type = Shown(event, "type");
    if (type == "approval_requested") {
      Clear();
      std::fprintf(stderr, "waits for approval; see: caisson approvals show %s\n", Shown(event, "approval_id").c_str());
      return;
    }
    std::string line = type;
    for (const char* name : {"check", "name", "reason", "error"}) {
      const std::string text = Shown(event, name);
      if (!text.empty()) line += "  " + text.substr(0, 60);
    }
    std::fprintf(stderr, "\r\033[K%s …", line.c_str());
    std::fflush(stderr);
  }
  void Clear() const {
    if (live_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool live_;
};

Result<int> AwaitResult(const client::Client& client, const std::string& job_id, const SubmitFlags& flags) {
  Progress progress(flags.quiet || flags.service.json);
  std::string last;
  CAISSON_TRY_VOID(client::Follow(client, job_id, 0, [&](const json& event) {
    last = event.value("type", "");
    progress.On(event);
  }));
  progress.Clear();
  if (last == "dead_lettered")
    return Error{ErrorKind::kSystem, 0, "the job came to no verdict; see: caisson dlq show " + job_id};
  CAISSON_TRY(const json result, client.Json(Get(JobTarget(job_id, "/result"))));
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
  app.add_flag("--quiet,-q", flags.quiet, "Say nothing but errors");
  app.add_option("--mode", flags.mode, "balanced or strict")->check(CLI::IsMember({"balanced", "strict"}));
  app.add_option("--profile", flags.profile, "Isolation profile");
  app.add_option("--key", flags.key, "Idempotency key: the same key and request again give the same job");
  app.add_option("--label", flags.labels, "KEY=VALUE, to find it by (repeatable)")->allow_extra_args(false);
  app.add_option("--artifact", flags.artifacts, "Collect what matches the glob (repeatable)")->allow_extra_args(false);
  app.add_option("--priority", flags.priority, "-100 to 100; higher runs earlier");
  app.add_option("--deadline", flags.deadline, "RFC 3339 time after which the result is of no use");
  app.add_option("PATH", flags.path, "A Python file, a directory, an archive, or a request (*.json)")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;

  const Result<json> request = MakeRequestDocument(flags);
  if (!request) return Report(request.error());
  return WithService(flags.service, [&](const client::Client& client) -> Result<int> {
    if (LooksLikeArchive(flags.path)) CAISSON_TRY_VOID(SendArchive(client, flags.path));
    CAISSON_TRY(const json job, SendRequest(client, *request));
    const std::string job_id = job.value("job_id", "");
    if (job_id.empty()) return Error{ErrorKind::kSystem, 0, "the service's answer names no job"};
    if (flags.wait) return AwaitResult(client, job_id, flags);
    if (flags.service.json)
      PrintJson(job);
    else if (!flags.quiet)
      std::puts(EscapeForTerminal(job_id).c_str());
    return 0;
  });
}

}  // namespace caisson::cli
