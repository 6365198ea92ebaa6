// caisson run: one command in a sandbox, streams passed through, the command's own exit code.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/audit_trail.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "linux/terminal.h"
#include "verify/request_syntax.h"
#include "verify/verdict.h"
#include "verify/verifier.h"

namespace caisson::cli {

namespace {

constexpr int kRefused = 125;
constexpr int64_t kSignalGraceMs = 2000;

constexpr char kFooter[] = R"(
Inside, the host's programs (/usr) are read-only, /workspace is empty unless --workspace shows a directory, /scratch and
/tmp are writable and vanish at the end, and there is no network. Nothing of your environment is passed but what -e names.

Exit codes: the command's own; 124 time limit, 125 the sandbox could not be set up or policy refused, 126 not executable,
127 not found, 128+N signal N, 137 memory limit, 159 forbidden system call. --result FILE holds the whole truth.

Examples:
  caisson run -- python3 -c 'print(6 * 7)'
  caisson run --workspace . -- python3 main.py
  caisson run --workspace .:cow --memory 256M --timeout 30s -- make test
  caisson run -t -- bash)";

struct RunFlags {
  SharedFlags shared;
  std::vector<std::string> environment, mounts;
  std::string directory = "/workspace", workspace;
  bool terminal = false, interactive = false;
  UniqueFd result_file;
};

// `decision` is filled also when it is a refusal.
Result<policy::RunPlan> MakePlan(const RunFlags& flags, std::vector<std::string> command, policy::Decision& decision) {
  CAISSON_TRY_VOID(RefuseNetwork(flags.shared));
  CAISSON_TRY(const verify::Authority authority, ReadAuthority(flags.shared));
  CAISSON_TRY(verify::Admission admission, verify::Admission::Open(authority, flags.shared.mode, ""));
  policy::RunPlan& plan = admission.plan();
  for (const std::string& text : flags.mounts) {
    CAISSON_TRY(const verify::Mount mount, ReadMount(text));
    CAISSON_TRY_VOID(admission.AddMount(mount.source, mount.target, mount.access, true));
  }
  if (!flags.workspace.empty()) {
    std::string path = flags.workspace;
    policy::Access access = plan.workspace_access;
    if (const size_t colon = path.rfind(':');
        colon != std::string::npos && path.find('/', colon) == std::string::npos) {
      CAISSON_TRY(access, ReadAccess(path.substr(colon + 1)));
      path.resize(colon);
    }
    CAISSON_TRY_VOID(admission.AddMount(path, "/workspace", access, true));
    if (!plan.workspace_mount->source.is_directory)
      return Error::Invalid("--workspace " + EscapeForTerminal(path) + ": not a directory");
  }
  policy::PlannedCommand planned;
  planned.name = planned.tier = "run";
  size_t argument_bytes = 0;
  for (const std::string& argument : command) argument_bytes += argument.size() + 9;
  for (const std::string& variable : flags.environment) {
    const size_t equals = variable.find('=');
    const std::string key = variable.substr(0, equals);
    if (key.empty()) return Error::Invalid("-e " + EscapeForTerminal(variable) + ": expected NAME=VALUE");
    const char* inherited = ::getenv(key.c_str());
    if (equals == std::string::npos && inherited == nullptr)
      return Error::Invalid("-e " + EscapeForTerminal(key) + ": not set here; give NAME=VALUE");
    planned.env.emplace_back(key, equals == std::string::npos ? inherited : variable.substr(equals + 1));
    argument_bytes += variable.size() + 9;
  }
  if (argument_bytes > verify::kMaxArgvEnvBytes) {
    return Error::Invalid("the command and its environment take " + FormatSize(static_cast<int64_t>(argument_bytes)) +
                          "; at most " + FormatSize(verify::kMaxArgvEnvBytes) +
                          " can be passed: use a file or standard input");
  }
  planned.argv = std::move(command);
  planned.cwd = flags.directory;
  const bool in_mount = std::any_of(plan.mounts.begin(), plan.mounts.end(), [&](const policy::PlannedMount& mount) {
    return mount.target == planned.cwd || planned.cwd.compare(0, mount.target.size() + 1, mount.target + "/") == 0;
  });
  if (const auto fault = verify::FaultInWorkingDirectory(planned.cwd); fault && !in_mount)
    return Error::Invalid("-w " + *fault);
  planned.timeout_ms = plan.limits.command_timeout_ms;
  policy::RequestFacts facts;
  facts.source = "command";
  facts.language = policy::LanguageOf(planned.argv);
  if (policy::IsInstallStep(planned.tier, planned.argv)) facts.asks.insert(policy::Ask::kInstall);
  plan.commands.push_back(std::move(planned));
  Status judged = admission.Close(std::move(facts), true);
  decision = plan.decision;
  if (!judged) return std::move(judged).error();
  if (flags.terminal && flags.shared.json) return Error::Invalid("-t and --json exclude each other");
  plan.stdio = flags.terminal      ? policy::Stdio::kTerminal
               : flags.shared.json ? policy::Stdio::kCapture
                                   : policy::Stdio::kPassThrough;
  return std::move(plan);
}

int ExitCode(const CommandOutcome& outcome) {
  switch (outcome.ending) {
    case Ending::kTimeout:
      return 124;
    case Ending::kNotExecutable:
      return outcome.exec_errno == ENOENT || outcome.exec_errno == ENOTDIR ? 127 : 126;
    case Ending::kCancelled:
      return 128 + SIGTERM;
    default:
      return outcome.exit_code;
  }
}

// One line about what ended it, when that was not the command itself.
void Explain(const CommandOutcome& outcome, const std::string& program) {
  if (outcome.ending == Ending::kNotExecutable) {
    const bool missing = outcome.exec_errno == ENOENT;
    return Complain(
        program + ": " +
        (missing ? "not found in the sandbox, or its interpreter is not there" : std::strerror(outcome.exec_errno)));
  }
  for (const Violation& violation : outcome.violations) {
    std::string line = std::string(ClassName(violation.violation_class)) + ": " + violation.reason;
    for (const auto& [key, value] : violation.evidence) {
      const auto* number = std::get_if<int64_t>(&value);
      line += " " + key + "=" + (number != nullptr ? std::to_string(*number) : std::get<std::string>(value));
    }
    if (violation.limit >= 0) line += " limit=" + std::to_string(violation.limit);
    Complain(line);
  }
  if (outcome.violations_dropped > 0) Complain("and " + std::to_string(outcome.violations_dropped) + " more");
}

int Fail(const Error& error, const RunFlags& flags, verify::EventLog& events,
         const policy::Decision* decision = nullptr) {
  Complain(error.message);
  verify::Request request;
  request.request_id = verify::GenerateRequestId();
  if (flags.result_file) {
    verify::VerificationResult result = verify::RefusalResult(request, error);
    if (decision != nullptr) result.decision = policy::ToJson(*decision);
    if (Status written = WriteJson(flags.result_file.get(), verify::ToJson(result)); !written)
      Complain(written.error().message);
  }
  if (events.enabled()) {
    events.Begin(request.request_id);
    nlohmann::json members = {{"error", error.message}};
    if (decision != nullptr) members["decision"] = policy::ToJson(*decision);
    events.Write(error.kind == ErrorKind::kDenied ? "rejected" : "sandbox_failed", std::move(members));
  }
  return kRefused;
}

int Execute(policy::RunPlan plan, const RunFlags& flags, verify::EventLog& events, const AuditTrail& trail,
            runtime::Runtime& runtime) {
  const int signal_fd = TakeSignals();
  verify::VerificationResult result;
  result.request_id = verify::GenerateRequestId();
  result.mode = flags.shared.mode == "strict" ? verify::Mode::kStrict : verify::Mode::kBalanced;
  const bool record = flags.result_file.valid() || flags.shared.json || events.enabled() || !flags.shared.audit.empty();
  if (record) {
    result.policy_digest = verify::PolicyDigest(plan);
    result.policy = verify::DescribePolicy(plan);
    result.decision = policy::ToJson(plan.decision);
  }
  if (Status kept = trail.Admitted(result.request_id, result.policy_digest, "", plan.decision); !kept)
    return Fail(kept.error(), flags, events);
  if (events.enabled()) events.Begin(result.request_id);
  const policy::PlannedCommand command = plan.commands[0];
  const policy::OnViolation on_violation = plan.profile.on_violation;

  Result<std::unique_ptr<runtime::Run>> run = runtime.Start(std::move(plan));
  if (!run) return Fail(run.error(), flags, events);
  if (record) result.isolation = (*run)->isolation();
  if (events.enabled())
    events.Write("sandbox_started", {{"isolation", verify::ToJson(*result.isolation)},
                                     {"policy", result.policy},
                                     {"policy_digest", result.policy_digest}});
  if (!flags.shared.quiet) {
    for (const std::string& wall : (*run)->isolation().degraded) {
      if (::isatty(STDERR_FILENO)) Complain("degraded: " + wall);
    }
  }
  runtime::ExecuteOptions options;
  options.timeout_ms = command.timeout_ms;
  options.timeout_name = "command_timeout_ms";
  options.signal_fd = signal_fd;
  options.signal_grace_ms = kSignalGraceMs;
  options.on_violation = [&](const Violation& violation) {
    if (events.enabled()) events.Write("violation", {{"violation", verify::ToJson(violation)}});
  };
  Result<CommandOutcome> outcome = [&] {
    std::optional<linux_sys::RawTerminal> raw;
    if (flags.terminal) raw.emplace();
    return (*run)->Execute(0, options);
  }();
  run->reset();
  if (!outcome) return Fail(outcome.error(), flags, events);
  if (!flags.shared.quiet && !flags.shared.json) Explain(*outcome, command.argv[0]);
  const int exit_code = ExitCode(*outcome);
  if (record) {
    if (outcome->ending == Ending::kNotExecutable) outcome->exit_code = exit_code;
    result.verdict = verify::Judge(*outcome, on_violation);
    result.duration_ms = outcome->duration_ms;
    result.checks.push_back({command.name, command.tier, command.argv, *std::move(outcome)});
    const nlohmann::json document = verify::ToJson(result);
    const std::string text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (Status kept = trail.Ended(result, text); !kept) {
      Complain(kept.error().message);
      return kRefused;
    }
    if (events.enabled()) {
      events.Write("sandbox_stopped", nlohmann::json::object());
      events.Write("result", {{"result", document}});
    }
    if (flags.shared.json) {
      std::puts(document.dump(2, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
    }
    if (flags.result_file) {
      if (Status written = WriteJson(flags.result_file.get(), document); !written) {
        Complain(written.error().message);
        return kRefused;
      }
    }
  }
  return exit_code;
}

}  // namespace

int RunCommand(std::vector<std::string> arguments, runtime::Runtime& runtime) {
  RunFlags flags;
  CLI::App app("Run a command in a sandbox.\nUsage: caisson run [flags] -- COMMAND [ARG...]", "run");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  AddSharedFlags(app, flags.shared);
  app.add_option("-e,--env", flags.environment, "NAME=VALUE, or NAME to pass your own value")->allow_extra_args(false);
  app.add_option("-v,--volume", flags.mounts, "SRC:DST[:ro|cow|rw]: show a host path; ro unless said otherwise")
      ->allow_extra_args(false);
  app.add_option("-w,--workdir", flags.directory, "Working directory inside; default /workspace");
  app.add_option("--workspace", flags.workspace, "DIR[:ro|cow|rw]: show a directory as /workspace");
  app.add_flag("-t,--tty", flags.terminal, "Give it a terminal");
  app.add_flag("-i,--interactive", flags.interactive, "Accepted for habit: standard input always passes through");

  std::vector<std::string> command;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      arguments.resize(i);
      break;
    }
  }
  app.prefix_command(command.empty());
  if (const auto exit_code = Parse(app, std::move(arguments), kRefused)) return *exit_code;
  if (command.empty()) command = app.remaining();
  if (command.empty()) {
    Complain("no command given: caisson run [flags] -- COMMAND (see: caisson run --help)");
    return kRefused;
  }
  verify::EventLog events;
  if (!flags.shared.events.empty()) {
    Result<verify::EventLog> opened = verify::EventLog::Open(flags.shared.events);
    if (!opened) return Fail(opened.error(), flags, events);
    events = *std::move(opened);
  }
  Result<UniqueFd> result_file = OpenResultFile(flags.shared.result);
  if (!result_file) return Fail(result_file.error(), flags, events);
  flags.result_file = *std::move(result_file);
  if (command[0].empty()) return Fail(Error::Invalid("the command's name is empty"), flags, events);
  const Result<AuditTrail> trail = AuditTrail::Open(flags.shared.audit);
  if (!trail) return Fail(trail.error(), flags, events);
  policy::Decision decision;
  Result<policy::RunPlan> plan = MakePlan(flags, std::move(command), decision);
  if (!plan) {
    if (Status kept = trail->Rejected(verify::GenerateRequestId(), plan.error()); !kept) Complain(kept.error().message);
    return Fail(plan.error(), flags, events, &decision);
  }
  if (flags.shared.dry_run) {
    std::puts(verify::DescribePlan(*plan).dump(2).c_str());
    return 0;
  }
  return Execute(*std::move(plan), flags, events, *trail, runtime);
}

}  // namespace caisson::cli
