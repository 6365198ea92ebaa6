// caisson run: one command in a sandbox, streams passed through, the command's own exit code.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/command_audit.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/terminal_asker.h"
#include "linux/sockets.h"
#include "linux/terminal.h"
#include "policy/syntax.h"
#include "verify/request_syntax.h"
#include "verify/run_driver.h"

namespace caisson::cli {

namespace {

constexpr int64_t kSignalGraceMs = 2000;

constexpr char kFooter[] = R"(
Inside, the host's programs (/usr), or those of --image, are read-only, /workspace is empty unless --workspace shows a directory, /scratch and
/tmp are writable and vanish at the end, and there is no network unless --network says so. Nothing of your environment is passed but what -e names.

Exit codes: the command's own; 124 time or CPU time limit, 125 the sandbox could not be set up or policy refused, 126 not executable,
127 not found, 128+N signal N, 137 memory limit, 159 forbidden system call. --result FILE holds the whole truth.

Examples:
  caisson run -- python3 -c 'print(6 * 7)'
  caisson run --workspace . -- python3 main.py
  caisson run --workspace .:cow --memory 256M --timeout 30s -- make test
  caisson run --image python -- python3 main.py
  caisson run -t -- bash)";

struct RunFlags {
  SharedFlags shared;
  std::vector<std::string> environment, mounts, forwards;
  std::string directory, workspace;
  bool terminal = false, interactive = false;
  std::unique_ptr<TerminalAsker> asker;  // only where a person can be asked
  UniqueFd no_input;
  UniqueFd result_file;
};

// The image's directory is for its own programs; with a workspace, the caller's is what counts.
std::string ChooseDirectory(const RunFlags& flags, const policy::RunPlan& plan) {
  if (!flags.directory.empty()) return flags.directory;
  const bool own = plan.image && flags.workspace.empty() && !plan.image->working_directory.empty();
  return own ? plan.image->working_directory : "/workspace";
}

bool IsInImage(const policy::RunPlan& plan, const std::string& path) {
  if (!plan.image || !plan.image->root || (path + "/").find("/../") != std::string::npos) return false;
  const auto& entries = plan.image->root->entries;
  return std::any_of(entries.begin(), entries.end(), [&](const policy::RootEntry& entry) {
    const std::string top = "/" + entry.name;
    return path == top || path.compare(0, top.size() + 1, top + "/") == 0;
  });
}

// "PORT" or "PORT:INSIDE_PORT".
Result<policy::PlannedForward> ReadForward(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string outside = text.substr(0, colon);
  const std::string inside = colon == std::string::npos ? outside : text.substr(colon + 1);
  for (const std::string& port : {outside, inside}) {
    if (const policy::Fault fault = policy::FaultInPort(port))
      return Error::Invalid("--forward " + EscapeForTerminal(text) + ": " + EscapeForTerminal(port) + " " + *fault);
  }
  policy::PlannedForward forward;
  forward.port = static_cast<uint16_t>(std::stoul(outside));
  forward.inside_port = static_cast<uint16_t>(std::stoul(inside));
  return forward;
}

// Listens with the rights of this user, before anything starts: a port that is taken is known at once.
Status OpenForwards(policy::RunPlan& plan) {
  for (policy::PlannedForward& forward : plan.forwards) {
    Result<UniqueFd> listener = linux_sys::ListenAtLoopback(forward.port);
    if (!listener) return std::move(listener).error().In("--forward " + std::to_string(forward.port));
    forward.listener = *std::move(listener);
  }
  return {};
}

// Where the profile wants it and there is a terminal, its user is asked about destinations that no rule mentions.
// SECURITY: the command must not read what the user answers, so it has another standard input, or the terminal and no
// questions.
void Attend(policy::RunPlan& plan, RunFlags& flags) {
  if (!plan.profile.network.ask || flags.terminal || !::isatty(STDERR_FILENO)) return;
  flags.asker = TerminalAsker::Open();
  plan.attended = flags.asker != nullptr;
  if (plan.attended && ::isatty(STDIN_FILENO)) flags.no_input.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// `decision` is filled also when it is a refusal.
Result<policy::RunPlan> MakePlan(const RunFlags& flags, std::vector<std::string> command,
                                 const runtime::Runtimes& runtimes, policy::Decision& decision) {
  if (!command.empty() && command[0].empty()) return Error::Invalid("the command's name is empty");
  CAISSON_TRY(const verify::Authority authority, ReadAuthority(flags.shared, Describe(runtimes)));
  CAISSON_TRY(verify::Admission admission, verify::Admission::Open(authority, flags.shared.mode, ""));
  CAISSON_TRY_VOID(admission.UseImage(""));
  policy::RunPlan& plan = admission.plan();
  if (command.empty()) command = plan.image->command;
  if (command.empty() || command[0].empty())
    return Error::Invalid("the image " + EscapeForTerminal(flags.shared.image) +
                          " has no entry point: give a command behind --");
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
  for (const std::string& text : flags.forwards) {
    CAISSON_TRY(policy::PlannedForward forward, ReadForward(text));
    plan.forwards.push_back(std::move(forward));
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
  planned.cwd = ChooseDirectory(flags, plan);
  const bool in_mount = std::any_of(plan.mounts.begin(), plan.mounts.end(), [&](const policy::PlannedMount& mount) {
    return mount.target == planned.cwd || planned.cwd.compare(0, mount.target.size() + 1, mount.target + "/") == 0;
  });
  if (const auto fault = verify::FaultInWorkingDirectory(planned.cwd);
      fault && !in_mount && !IsInImage(plan, planned.cwd))
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
  return std::move(plan);
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
    if (violation.count > 1) line += " (and " + std::to_string(violation.count - 1) + " more of this kind)";
    Complain(line);
  }
}

int Fail(const Error& error) {
  Complain(error.message);
  return kExitRunRefused;
}

CommandIo ChooseIo(const RunFlags& flags) {
  if (flags.terminal) return CommandIo::Terminal(STDIN_FILENO, STDOUT_FILENO);
  if (flags.shared.json) return CommandIo::Capture();
  return CommandIo::Descriptors(flags.no_input ? flags.no_input.get() : STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO);
}

// Writes what --json, --result and --events want of it. False, with a complaint, when something cannot be written.
bool Deliver(const verify::VerificationResult& result, const RunFlags& flags, const verify::RunDriver& driver,
             const CommandAudit& audit) {
  const nlohmann::json document = verify::ToJson(result);
  Status delivered = driver.End(result, audit.DigestOf(document), {{"result", document}});
  const bool ran = !result.checks.empty();
  if (delivered && flags.shared.json && ran)
    std::puts(document.dump(2, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
  if (delivered && flags.result_file) delivered = WriteJson(flags.result_file.get(), document);
  if (!delivered) Complain(delivered.error().message);
  return bool(delivered);
}

int Execute(Result<policy::RunPlan> plan, const policy::Decision& decision, const RunFlags& flags,
            verify::EventLog& events, CommandAudit& audit, const runtime::Runtimes& runtimes) {
  verify::Request request;
  request.request_id = verify::GenerateRequestId();
  request.mode = flags.shared.mode == "strict" ? verify::Mode::kStrict : verify::Mode::kBalanced;
  if (events.enabled()) events.Begin(request.request_id);
  std::optional<linux_sys::RawTerminal> raw;
  verify::RunSinks sinks;
  sinks.audit = &audit;
  sinks.events = &events;
  sinks.on_started = [&](const runtime::IsolationReport& isolation) {
    if (flags.shared.quiet || !::isatty(STDERR_FILENO)) return;
    for (const std::string& wall : isolation.degraded) Complain("degraded: " + wall);
  };
  sinks.on_check_started = [&](const policy::PlannedCommand&, size_t, size_t) {
    if (flags.terminal) raw.emplace();
  };
  sinks.on_check_finished = [&](const verify::CheckRecord&) { raw.reset(); };
  verify::RunOptions options;
  std::optional<SignalStop> stop;
  if (plan) options.stop = &stop.emplace();
  options.choose_io = [&](const policy::PlannedCommand&) { return ChooseIo(flags); };
  options.signal_grace_ms = kSignalGraceMs;
  options.asker = flags.asker.get();
  options.has_budget = false;
  options.described = flags.result_file.valid() || flags.shared.json || events.enabled() || audit.enabled();
  verify::RunDriver driver(request, runtimes, sinks, options);
  const Result<verify::VerificationResult> result = [&]() -> Result<verify::VerificationResult> {
    if (!plan) return driver.Refuse(plan.error(), decision);
    verify::Admitted admitted;
    admitted.plan = *std::move(plan);
    if (options.described) admitted.policy_digest = verify::PolicyDigest(admitted.plan);
    return driver.Run(std::move(admitted));
  }();
  raw.reset();
  if (!result) return Fail(result.error());
  const bool ran = !result->checks.empty();
  if (!ran) Complain(result->message);
  if (ran && !flags.shared.quiet && !flags.shared.json) Explain(result->checks[0].outcome, result->checks[0].argv[0]);
  if (options.described && !Deliver(*result, flags, driver, audit)) return kExitRunRefused;
  return ran ? ExitCodeOf(result->checks[0].outcome) : kExitRunRefused;
}

}  // namespace

int RunCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes) {
  RunFlags flags;
  CLI::App app("Run a command in a sandbox.\nUsage: caisson run [flags] -- COMMAND [ARG...]", "run");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  AddSharedFlags(app, flags.shared);
  app.add_option("-e,--env", flags.environment, "NAME=VALUE, or NAME to pass your own value")->allow_extra_args(false);
  app.add_option("-v,--volume", flags.mounts, "SRC:DST[:ro|cow|rw]: show a host path; ro unless said otherwise")
      ->allow_extra_args(false);
  app.add_option("-w,--workdir", flags.directory, "Working directory inside; default /workspace, or the image's");
  app.add_option("--workspace", flags.workspace, "DIR[:ro|cow|rw]: show a directory as /workspace");
  app.add_option("--forward", flags.forwards,
                 "PORT[:INSIDE]: a server at that port inside can be reached at 127.0.0.1:PORT here")
      ->allow_extra_args(false);
  app.add_flag("--ask", flags.shared.ask, "Ask on the terminal about destinations that no rule mentions; not with -t");
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
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  if (command.empty()) command = app.remaining();
  if (command.empty() && flags.shared.image.empty()) {
    Complain("no command given: caisson run [flags] -- COMMAND (see: caisson run --help)");
    return kExitRunRefused;
  }
  verify::EventLog events;
  if (!flags.shared.events.empty()) {
    Result<verify::EventLog> opened = verify::EventLog::Open(flags.shared.events);
    if (!opened) return Fail(opened.error());
    events = *std::move(opened);
  }
  Result<UniqueFd> result_file = OpenResultFile(flags.shared.result);
  if (!result_file) return Fail(result_file.error());
  flags.result_file = *std::move(result_file);
  Result<CommandAudit> audit = CommandAudit::Open(flags.shared.audit);
  if (!audit) return Fail(audit.error());
  policy::Decision decision;
  Result<policy::RunPlan> plan = MakePlan(flags, std::move(command), runtimes, decision);
  if (plan && flags.shared.dry_run) {
    std::puts(verify::DescribePlan(*plan).dump(2).c_str());
    return kExitDone;
  }
  if (plan) {
    if (Status opened = OpenForwards(*plan); !opened) return Fail(opened.error());
    Attend(*plan, flags);
  }
  return Execute(std::move(plan), decision, flags, events, *audit, runtimes);
}

}  // namespace caisson::cli
