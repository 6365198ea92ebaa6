// caisson session exec and attach: commands in a session.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/units.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"

namespace caisson::cli {

using nlohmann::json;

namespace {

// Exit code of a followed command; the supervisor's end without a word about the command is ours to explain.
int CodeOf(const Followed& followed, const std::string& program, const std::string& id) {
  if (followed.detached) {
    std::fprintf(stderr, "\ndetached; it runs on: caisson session attach %s\n", id.c_str());
    return kExitDone;
  }
  if (!followed.end)
    return Fail(Error::Conflict("the session ended before the command did (see: caisson session show " + id + ")"));
  ExplainEnd(*followed.end, program);
  return followed.end->value("exit_code", kExitRunRefused);
}

}  // namespace

int SessionExec(Arguments arguments) {
  CLI::App app("Run a command in a session.\nUsage: caisson session exec ID [flags] -- COMMAND [ARG...]",
               "session exec");
  app.footer(R"(
Without a terminal the command ends with this one, and Ctrl-C and other signals go to it. With -t it stays when the
terminal is gone or ctrl-p ctrl-q is typed: caisson session attach follows it again. Processes that a command leaves
behind live until the session ends.)");
  bool as_json = false, terminal = false, interactive = false, detach = false;
  Prepare(app, &as_json);
  std::string id, directory = "/workspace", timeout, keys = "ctrl-p,ctrl-q";
  std::vector<std::string> variables;
  app.add_option("ID", id, "The session")->required();
  app.add_flag("-t,--tty", terminal, "Give it a terminal");
  app.add_flag("-i,--interactive", interactive, "Accepted for habit: standard input always passes through");
  app.add_flag("-d,--detach", detach, "Do not wait: print the command's number");
  app.add_option("-e,--env", variables, "NAME=VALUE, or NAME to pass your own value")->allow_extra_args(false);
  app.add_option("-w,--workdir", directory, "Working directory inside; default /workspace");
  app.add_option("--timeout", timeout, "End the command and its processes after this long, for example 30s");
  app.add_option("--detach-keys", keys, "Keys that detach from a terminal; default ctrl-p,ctrl-q");
  std::optional<Arguments> command = TakeCommand(arguments);
  app.prefix_command(!command);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  if (!command) command = app.remaining();
  if (command->empty())
    return Fail(
        Error::Invalid("no command given: caisson session exec ID -- COMMAND (see: caisson session exec --help)"));
  session::CommandRequest request;
  request.argv = *std::move(command);
  request.cwd = directory;
  request.terminal = terminal;
  request.detached = detach;
  request.input = !detach && !terminal;
  if (terminal && detach) return Fail(Error::Invalid("-t and --detach exclude each other: attach with -t later"));
  if (!timeout.empty()) {
    Result<int64_t> parsed = ParseDuration(timeout);
    if (!parsed || *parsed < 1) return Fail(Error::Invalid("--timeout " + timeout + ": expected a time such as 30s"));
    request.timeout_ms = *parsed;
  }
  Result<std::vector<std::pair<std::string, std::string>>> environment = ReadEnvironment(variables);
  if (!environment) return Fail(environment.error());
  if (terminal) {
    if (const char* kind = ::getenv("TERM")) environment->insert(environment->begin(), {"TERM", kind});
    std::tie(request.rows, request.columns) = WindowSize();
  }
  request.env = *std::move(environment);
  Result<std::string> detach_keys = ParseKeys(keys);
  if (!detach_keys) return Fail(detach_keys.error());
  Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  Result<session::Client> client = session::Client::Connect(found->directory);
  if (!client) return Fail(client.error());
  Result<session::RemoteCommand> started = client->Exec(request);
  if (!started) return Fail(started.error());
  if (detach) {
    if (as_json)
      Print({{"id", found->record.id}, {"command", started->number}, {"state", "running"}});
    else
      std::printf("%u\n", started->number);
    return kExitDone;
  }
  FollowOptions options;
  options.terminal = terminal;
  options.filtered = false;
  options.session = found->record.name;
  if (terminal) options.detach_keys = *detach_keys;
  const uint32_t number = started->number;
  if (as_json) {
    // The document alone goes to standard output, so the command's own output must not.
    started->output.Reset();
  }
  Result<Followed> followed = Follow(*client, *std::move(started), options);
  if (!followed) return Fail(followed.error());
  if (as_json && followed->end) {
    json document = *followed->end;
    document.erase("event");
    document["id"] = found->record.id;
    document["command"] = number;
    Print(document);
  }
  return CodeOf(*followed, request.argv[0], found->record.id);
}

int SessionAttach(Arguments arguments) {
  CLI::App app(
      "Follow a command of a session again: its last output, then what it writes.\n"
      "Usage: caisson session attach ID [N]",
      "session attach");
  Prepare(app);
  std::string id, keys = "ctrl-p,ctrl-q";
  uint32_t number = 0;
  bool read_only = false;
  app.add_option("ID", id, "The session")->required();
  app.add_option("N", number, "The command's number; default: the latest that runs");
  app.add_flag("--read-only", read_only, "Do not pass on what is typed");
  app.add_option("--detach-keys", keys, "Keys that detach; default ctrl-p,ctrl-q");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  Result<std::string> detach_keys = ParseKeys(keys);
  if (!detach_keys) return Fail(detach_keys.error());
  Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  Result<session::Client> client = session::Client::Connect(found->directory);
  if (!client) return Fail(client.error());
  const bool own_terminal = ::isatty(STDIN_FILENO) != 0;
  Result<session::RemoteCommand> attached =
      client->Attach(number == 0 ? std::nullopt : std::optional<uint32_t>(number), !read_only && own_terminal);
  if (!attached) return Fail(attached.error());
  if (attached->missing > 0)
    Complain("the first " + FormatSize(attached->missing) +
             " of its output are not kept any more; caisson session log " + found->record.id + " " +
             std::to_string(attached->number) + " shows the beginning");
  if (attached->terminal && own_terminal && !read_only && !attached->input)
    Complain("another terminal has the input; this one only watches");
  FollowOptions options;
  options.terminal = attached->terminal && own_terminal;
  options.filtered = true;
  options.session = found->record.name;
  if (own_terminal) options.detach_keys = *detach_keys;
  const uint32_t command = attached->number;
  Result<Followed> followed = Follow(*client, *std::move(attached), options);
  if (!followed) return Fail(followed.error());
  return CodeOf(*followed, "command " + std::to_string(command), found->record.id);
}

}  // namespace caisson::cli
