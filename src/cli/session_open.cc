// caisson session open: a new session, attached to a command or detached.
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "session/open_request.h"
#include "session/start.h"

namespace caisson::cli {

namespace {

constexpr char kFooter[] = R"(
PATH is shown at /workspace, with everything the session changes kept in a layer of its own; without PATH it is the
current directory, and with --empty there is none. The limits are those of all commands together.

On a terminal, a shell (or COMMAND) runs in the session, and at its end you see what changed and choose whether to apply
it, keep it for later or discard it. Without a terminal COMMAND runs with your streams, and the session stops with it.
With --detach nothing runs: use caisson session exec.

Exit codes: COMMAND's own, otherwise as caisson run; 125 when the session could not be opened.

Examples:
  caisson session open
  caisson session open ~/src/site --name site --detach
  caisson session open . --allow-domain class:packages:pypi -- bash)";

struct OpenFlags {
  SharedFlags shared;
  std::string path, name, workspace = "cow", idle, ttl, disk;
  std::vector<std::string> environment, mounts, labels;
  bool detach = false, empty = false;
};

Result<std::string> AbsolutePath(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  char* const directory = ::getcwd(nullptr, 0);
  if (directory == nullptr) return Error::System(errno, "find the current directory");
  const std::string absolute = std::string(directory) + (path.empty() || path == "." ? "" : "/" + path);
  ::free(directory);
  return absolute;
}

Result<session::OpenRequest> MakeRequest(const OpenFlags& flags) {
  session::OpenRequest request;
  request.name = flags.name;
  if (!flags.name.empty() && !session::IsSessionName(flags.name)) {
    return Error::Invalid("--name " + EscapeForTerminal(flags.name) +
                          ": expected up to 64 lower-case letters, digits, dots, dashes; not beginning as an id does");
  }
  if (flags.empty && !flags.path.empty()) return Error::Invalid("PATH and --empty exclude each other");
  if (flags.empty) {
    request.workspace_mode = session::WorkspaceMode::kEmpty;
  } else {
    CAISSON_TRY(request.project, AbsolutePath(flags.path));
    if (flags.workspace == "copy") request.workspace_mode = session::WorkspaceMode::kCopy;
  }
  const auto read_time = [](const char* flag, const std::string& text, int64_t& value) -> Status {
    if (text.empty()) return {};
    Result<int64_t> parsed = ParseDuration(text);
    if (!parsed) return std::move(parsed).error().In(flag);
    if (*parsed < 1 || *parsed > policy::kMaxTimeoutMs)
      return Error::Invalid(std::string(flag) + " " + EscapeForTerminal(text) + ": from 1ms to a year");
    value = *parsed;
    return {};
  };
  CAISSON_TRY_VOID(read_time("--idle", flags.idle, request.idle_ms));
  CAISSON_TRY_VOID(read_time("--ttl", flags.ttl, request.ttl_ms));
  if (!flags.disk.empty()) {
    Result<int64_t> bytes = ParseSize(flags.disk);
    if (!bytes) return std::move(bytes).error().In("--disk");
    if (*bytes < 4096) return Error::Invalid("--disk: too small");
    request.disk_bytes = *bytes;
  }
  for (const std::string& text : flags.mounts) {
    CAISSON_TRY(verify::Mount mount, ReadMount(text));
    CAISSON_TRY(mount.source, AbsolutePath(mount.source));
    request.mounts.push_back(std::move(mount));
  }
  for (const std::string& label : flags.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return Error::Invalid("--label " + EscapeForTerminal(label) + ": expected NAME=VALUE");
    request.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  CAISSON_TRY(request.env, ReadEnvironment(flags.environment));
  CAISSON_TRY(const verify::Authority authority, ReadAuthority(flags.shared));
  if (!flags.shared.profile.empty()) {
    request.profile = flags.shared.profile;
    // A file, which the supervisor reads from another directory.
    if (request.profile.find('/') != std::string::npos || request.profile.find(".yaml") != std::string::npos) {
      CAISSON_TRY(request.profile, AbsolutePath(request.profile));
    }
  }
  for (const auto& [given, value] :
       {std::pair{&flags.shared.profiles, &request.profiles}, std::pair{&flags.shared.policy, &request.policy},
        std::pair{&flags.shared.credentials_file, &request.credentials_file}}) {
    if (given->empty()) continue;
    CAISSON_TRY(*value, AbsolutePath(*given));
  }
  request.role = flags.shared.role;
  request.runtime = flags.shared.runtime;
  request.image = flags.shared.image;
  // A path, which the supervisor reads from another directory.
  if (constexpr std::string_view kVenv = "venv:"; request.image.rfind(kVenv, 0) == 0) {
    CAISSON_TRY(const std::string path, AbsolutePath(request.image.substr(kVenv.size())));
    request.image = std::string(kVenv) + path;
  }
  request.approved_rules = flags.shared.approve;
  request.limits = authority.limits;
  request.network = authority.network;
  // A person is there who can answer: the caller says so, or looks at a terminal.
  request.attended = request.network.ask.value_or(false) || (!flags.detach && ::isatty(STDERR_FILENO) != 0);
  return request;
}

// Reads one line from the user's terminal, which the sandboxed program has lost by now.
std::string AskUser(const char* question) {
  ::tcflush(STDIN_FILENO, TCIFLUSH);  // what was typed ahead was meant for the program
  std::fputs(question, stderr);
  std::string line;
  char c = 0;
  while (::read(STDIN_FILENO, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

void TellHowToFinish(const std::string& id) {
  std::fprintf(stderr,
               "caisson: the session %s is stopped and its changes are kept:\n"
               "  caisson session diff %s     what changed\n"
               "  caisson session apply %s    bring it into the project\n"
               "  caisson session rm %s       drop the session\n",
               id.c_str(), id.c_str(), id.c_str(), id.c_str());
}

int Conclude(const session::StoredSession& session, bool terminal, int exit_code) {
  if (!terminal) {
    TellHowToFinish(session.record.id);
    return exit_code;
  }
  std::fprintf(stderr, "\nThe session %s changed:\n", session.record.name.c_str());
  std::fflush(stderr);
  if (ShowChanges(session, true, false) != kExitDone || session.record.workspace.empty()) {
    TellHowToFinish(session.record.id);
    return exit_code;
  }
  while (true) {
    const std::string answer =
        AskUser("Apply these changes to the project, keep them for later, or discard them? [a/k/d] ");
    if (answer == "a" || answer == "apply") {
      const int applied = ApplyChanges(session, {}, false);
      return applied == kExitDone ? exit_code : applied;
    }
    if (answer == "d" || answer == "discard") {
      const int discarded = DiscardChanges(session, false);
      return discarded == kExitDone ? exit_code : discarded;
    }
    // Also when the terminal is gone: keeping loses nothing.
    if (answer.empty() || answer == "k" || answer == "keep") {
      TellHowToFinish(session.record.id);
      return exit_code;
    }
  }
}

int RunAttached(session::StoredSession session, std::vector<std::string> command) {
  const bool terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  session::CommandRequest request;
  request.argv = std::move(command);
  if (request.argv.empty()) {
    const char* shell = ::getenv("SHELL");
    request.argv = {shell != nullptr && ::access(shell, X_OK) == 0 ? shell : "/bin/sh"};
  }
  request.terminal = terminal;
  request.input = !terminal;
  if (terminal) {
    if (const char* kind = ::getenv("TERM")) request.env.emplace_back("TERM", kind);
    std::tie(request.rows, request.columns) = WindowSize();
  }
  Result<session::Client> client = session::Client::Connect(session.directory);
  if (!client) return Fail(client.error());
  FollowOptions options;
  options.terminal = terminal;
  options.session = session.record.name;
  if (terminal) options.detach_keys = "\x10\x11";
  Result<session::RemoteCommand> started = client->Exec(request);
  Result<Followed> followed =
      started ? Follow(*client, *std::move(started), options) : Result<Followed>(started.error());
  if (!followed) {
    (void)client->Stop("the first command could not be run");
    return Fail(followed.error());
  }
  if (followed->detached) {
    std::fprintf(stderr, "\ndetached; it runs on: caisson session attach %s\n", session.record.name.c_str());
    return kExitDone;
  }
  if (followed->end) ExplainEnd(*followed->end, request.argv[0]);
  const int exit_code = followed->end ? followed->end->value("exit_code", kExitRunRefused) : kExitRunRefused;
  if (const Status stopped = client->Stop("its first command ended"); !stopped) return Fail(stopped.error());
  // The supervisor has written its last record when it answers.
  Result<session::Record> record = session.directory.ReadRecord();
  if (record) session.record = *std::move(record);
  return Conclude(session, terminal, exit_code);
}

}  // namespace

int SessionOpen(Arguments arguments) {
  OpenFlags flags;
  CLI::App app("Open a session on a project.\nUsage: caisson session open [PATH] [flags] [-- COMMAND [ARG...]]",
               "session open");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  AddSessionFlags(app, flags.shared);
  app.add_option("PATH", flags.path, "The project directory; default: the current one");
  app.add_option("--name", flags.name, "A name to call it by; default: the directory's");
  app.add_flag("--empty", flags.empty, "No project: /workspace begins empty");
  app.add_option("--workspace", flags.workspace,
                 "cow: the project itself below a layer of changes (default); copy: a private copy")
      ->check(CLI::IsMember({"cow", "copy"}));
  app.add_option("--idle", flags.idle, "Stop after this long without a command or client; default 30m");
  app.add_option("--ttl", flags.ttl, "Stop after this long in any case; default 8h");
  app.add_option("--disk", flags.disk,
                 "Most that the changes may take on the disk; default: the profile's scratch_bytes");
  app.add_option("-e,--env", flags.environment, "NAME=VALUE, or NAME to pass your own value, for every command")
      ->allow_extra_args(false);
  app.add_option("-v,--volume", flags.mounts, "SRC:DST[:ro|cow|rw]: show a host path; ro unless said otherwise")
      ->allow_extra_args(false);
  app.add_option("--label", flags.labels, "NAME=VALUE, to find it by")->allow_extra_args(false);
  app.add_flag(
      "--ask", flags.shared.ask,
      "Ask about destinations that no rule mentions; answer with caisson session approve, or where you are attached");
  app.add_flag("-d,--detach", flags.detach, "Open it and return");
  std::optional<Arguments> command = TakeCommand(arguments);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  if (flags.detach && command)
    return Fail(Error::Invalid("--detach and a command exclude each other: use session exec"));
  if (flags.shared.json && !flags.detach) return Fail(Error::Invalid("--json needs --detach"));
  const bool terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  if (!flags.detach && !command && !terminal)
    return Fail(Error::Invalid("no terminal for a shell: give a command (-- COMMAND), or --detach"));
  Result<session::OpenRequest> request = MakeRequest(flags);
  if (!request) return Fail(request.error());
  Result<std::string> root = session::SessionsRoot();
  if (!root) return Fail(root.error());
  Result<session::SessionDirectory> directory = session::SessionDirectory::Create(*root);
  if (!directory) return Fail(directory.error());
  Result<session::Record> record = session::StartSupervisor(*directory, *request);
  if (!record) {
    const int code = Fail(record.error());
    if (const Status removed = directory->Remove(); !removed) Complain(removed.error().message);
    return code;
  }
  if (!flags.shared.quiet && !flags.shared.json) {
    for (const std::string& notice : record->notices) Complain(notice);
  }
  if (flags.detach) {
    if (flags.shared.json)
      Print(PublicJson(*record));
    else
      std::printf("%s\n", record->id.c_str());
    return kExitDone;
  }
  return RunAttached({*std::move(directory), *std::move(record)}, command.value_or(Arguments{}));
}

}  // namespace caisson::cli
