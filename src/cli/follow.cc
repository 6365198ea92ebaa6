// caisson logs, events: output and events of a job, while it runs or afterwards.
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/service_access.h"
#include "client/event_stream.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

void PrintEvent(const json& event) {
  std::string line = Shown(event, "time") + "  " + Shown(event, "type");
  for (const auto& [name, value] : event.items()) {
    const bool envelope = name == "schema_version" || name == "seq" || name == "time" || name == "run_id" ||
                          name == "request_id" || name == "type";
    if (!envelope && value.is_primitive() && !value.is_null())
      line += "  " + EscapeForTerminal(name) + "=" + Shown(event, name.c_str());
  }
  if (const auto violation = event.find("violation"); violation != event.end())
    line += "  " + Shown(*violation, "class") + " " + Shown(*violation, "reason");
  if (const auto result = event.find("result"); result != event.end())
    line += "  " + Shown(*result, "status") + " " + Shown(*result, "failure_class");
  std::puts(line.c_str());
  std::fflush(stdout);
}

void PrintEventLine(const json& event) {
  std::puts(event.dump(-1, ' ', true, json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

// Control characters are escaped for a terminal; a file or a pipe gets the bytes unchanged.
class LogPrinter {
 public:
  Status Print(std::string_view bytes) {
    if (!terminal_) return std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() ? Flush() : Failed();
    // Whole lines, so that no character is torn.
    line_.append(bytes);
    const size_t end = line_.rfind('\n');
    if (end == std::string::npos && line_.size() < 65536) return {};
    const std::string shown =
        EscapeForTerminal(line_.substr(0, end == std::string::npos ? end : end + 1), LineBreaks::kKeep);
    line_.erase(0, end == std::string::npos ? end : end + 1);
    return std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size() ? Flush() : Failed();
  }
  void Finish() {
    if (!line_.empty()) std::puts(EscapeForTerminal(line_, LineBreaks::kKeep).c_str());
  }

 private:
  static Status Flush() { return std::fflush(stdout) == 0 ? Status() : Failed(); }
  static Status Failed() { return Error::System(errno, "write"); }

  const bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  std::string line_;
};

}  // namespace

int LogsCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id, stream;
  bool follow = false;
  CLI::App app("The output of a job.\nUsage: caisson logs [-f] [--stream stdout|stderr] JOB", "logs");
  AddServiceFlags(app, flags, R"(
Both streams in the order of arrival while the job runs; afterwards standard output first.

Example:
  caisson logs -f "$job")");
  app.add_flag("-f,--follow", follow, "Continue until the job ends");
  app.add_option("--stream", stream, "Only this one")->check(CLI::IsMember({"stdout", "stderr"}));
  app.add_option("JOB", job_id, "The job's id")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    client::Ask ask = Get(JobTarget(
        job_id, "/logs?follow=" + std::string(follow ? "1" : "0") + (stream.empty() ? "" : "&stream=" + stream)));
    // A program may be silent until its time limit.
    if (follow) ask.timeout_ms = int64_t{24} * 3'600'000;
    LogPrinter printer;
    const Status done = client.Stream(ask, [&](std::string_view bytes) { return printer.Print(bytes); });
    printer.Finish();
    if (!done) return done.error();
    return 0;
  });
}

int EventsCommand(std::vector<std::string> arguments) {
  ServiceFlags flags;
  std::string job_id;
  bool follow = false;
  CLI::App app("The events of a job.\nUsage: caisson events [-f] [--json] JOB", "events");
  AddServiceFlags(app, flags, R"(
With --json, one JSON object a line, as caisson verify --events writes them.

Example:
  caisson events -f --json "$job" | jq .type)");
  app.add_flag("-f,--follow", follow, "Continue until the job ends");
  app.add_option("JOB", job_id, "The job's id")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  const auto print = flags.json ? PrintEventLine : PrintEvent;
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    if (follow) {
      CAISSON_TRY_VOID(client::Follow(client, job_id, 0, print));
      return 0;
    }
    for (int64_t after = 0;;) {
      CAISSON_TRY(const json page,
                  client.Json(Get(JobTarget(job_id, "/events?limit=1000&after=" + std::to_string(after)))));
      const json events = page.value("events", json::array());
      for (const json& event : events) print(event);
      const int64_t next = page.value("next_after", after);
      if (events.empty() || next <= after) return 0;
      after = next;
    }
  });
}

}  // namespace caisson::cli
