// caisson session: sandboxes that stay, with changes that are kept beside the project until they are applied.
#include "cli/session.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/images.h"
#include "session/start.h"

namespace caisson::cli {

namespace {

constexpr char kHelp[] = R"(caisson session: a sandbox that stays, on a project directory that stays as it is.

  caisson session open [PATH] [-- COMMAND]   open a session on PATH (default: the current directory)
  caisson session exec ID -- COMMAND         run a command in it; its own exit code
  caisson session attach ID [N]              follow command N again; ctrl-p ctrl-q detaches
  caisson session cp A B                     copy files in or out: ID:/workspace/file
  caisson session diff ID                    what the session changed: a patch, --stat or --json
  caisson session apply ID [--only PATH]     bring the changes into the project: all or nothing
  caisson session discard ID                 drop them
  caisson session approvals [ID]             what programs inside ask for; approve ID APPROVAL, deny ID APPROVAL answer
  caisson session forward ID PORT[:INSIDE]   reach a server inside at 127.0.0.1:PORT
  caisson session commits ID                 fetch commits made inside into refs/caisson/ of the project
  caisson session list, show ID              what there is; --json
  caisson session log ID [N], replay ID      what happened; the output of command N; the terminal again
  caisson session fork ID                    another session that begins with these changes
  caisson session stop ID, rm ID             end it, and keep its changes; remove everything

ID is a session's id, its beginning, or its name. Inside, the project is /workspace and can be changed at will: the
changes go to a layer of the session, and the project itself changes only by "apply". Processes live on between commands
and end with the session: by stop, after --idle (30m) without use, or after --ttl (8h).

Exit codes: those of caisson run; apply: 5 when the project changed meanwhile (nothing is applied).

Example:
  caisson session open . --name fix --detach
  caisson session exec fix -- make test
  caisson session diff fix --stat && caisson session apply fix
)";

constexpr std::pair<const char*, int (*)(Arguments)> kCommands[] = {
    {"open", SessionOpen},       {"exec", SessionExec},   {"attach", SessionAttach},   {"cp", SessionCopy},
    {"diff", SessionDiff},       {"apply", SessionApply}, {"discard", SessionDiscard}, {"fork", SessionFork},
    {"list", SessionList},       {"ls", SessionList},     {"show", SessionShow},       {"log", SessionLog},
    {"replay", SessionReplay},   {"stop", SessionStop},   {"rm", SessionRemove},       {"approvals", SessionApprovals},
    {"approve", SessionApprove}, {"deny", SessionDeny},   {"forward", SessionForward}, {"commits", SessionCommits},
};

}  // namespace

void Prepare(CLI::App& app, bool* json) {
  app.set_help_flag("--help,-h", "Show this help");
  if (json != nullptr) app.add_flag("--json", *json, "Print one JSON document on standard output");
}

std::optional<Arguments> TakeCommand(Arguments& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != "--") continue;
    Arguments command(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
    arguments.resize(i);
    return command;
  }
  return std::nullopt;
}

Result<session::StoredSession> FindSession(const std::string& text) {
  CAISSON_TRY(const std::string root, session::SessionsRoot());
  return session::FindSession(root, text);
}

int Fail(const Error& error) {
  Complain(error.message);
  return kExitRunRefused;
}

void Print(const nlohmann::ordered_json& document) {
  std::puts(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

Result<std::vector<std::pair<std::string, std::string>>> ReadEnvironment(const std::vector<std::string>& variables) {
  std::vector<std::pair<std::string, std::string>> environment;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string key = variable.substr(0, equals);
    if (key.empty()) return Error::Invalid("-e " + EscapeForTerminal(variable) + ": expected NAME=VALUE");
    const char* inherited = ::getenv(key.c_str());
    if (equals == std::string::npos && inherited == nullptr)
      return Error::Invalid("-e " + EscapeForTerminal(key) + ": not set here; give NAME=VALUE");
    environment.emplace_back(key, equals == std::string::npos ? inherited : variable.substr(equals + 1));
  }
  return environment;
}

int SessionCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes) {
  const std::string name = arguments.empty() ? "--help" : arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(kHelp, stdout);
    return arguments.empty() ? kExitUsage : kExitDone;
  }
  arguments.erase(arguments.begin());
  if (name == "supervise" && arguments.size() == 1) return session::Supervise(arguments[0], runtimes, OpenImage);
  for (const auto& [known, run] : kCommands) {
    if (name == known) return run(std::move(arguments));
  }
  Complain("there is no command \"session " + name + "\" (see: caisson session --help)");
  return kExitUsage;
}

}  // namespace caisson::cli
