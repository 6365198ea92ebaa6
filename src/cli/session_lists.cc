// caisson session list, show, log, replay, stop and rm.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "linux/files.h"
#include "session/session_events.h"
#include "session/terminal_filter.h"
#include "session/transcript.h"
#include "session/transcript_reader.h"
#include "verify/json_reader.h"

namespace caisson::cli {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr size_t kMaxCommandRecord = size_t{16} << 20;

std::string TextOf(const json& words) {
  std::string text;
  for (const json& word : words)
    text += (text.empty() ? "" : " ") + (word.is_string() ? word.get<std::string>() : std::string("…"));
  return EscapeForTerminal(text);
}

// The commands of a session, as their files say; a living session's supervisor keeps them up to date.
Result<std::vector<json>> ReadCommands(const session::StoredSession& session) {
  std::vector<json> commands;
  for (int64_t number = 1; number <= session.record.commands; ++number) {
    const std::string name = "commands/" + std::to_string(number) + ".json";
    const Result<std::string> text = session.directory.ReadText(name.c_str(), kMaxCommandRecord);
    if (!text) continue;  // it could not be started
    verify::JsonBounds bounds;
    bounds.max_bytes = kMaxCommandRecord;
    CAISSON_TRY(json command, verify::ReadJson(*text, bounds));
    if (!session::IsLive(session.record.state) && command.value("state", "") == "running") command["state"] = "lost";
    commands.push_back(std::move(command));
  }
  return commands;
}

Result<int> ShowOutput(const session::StoredSession& session, int64_t number) {
  const std::string record_name = "commands/" + std::to_string(number) + ".json";
  CAISSON_TRY(const std::string text, session.directory.ReadText(record_name.c_str(), kMaxCommandRecord));
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxCommandRecord;
  CAISSON_TRY(const json command, verify::ReadJson(text, bounds));
  for (const auto& [suffix, key, fd] :
       {std::tuple{"out", "stdout_left_out", STDOUT_FILENO}, std::tuple{"err", "stderr_left_out", STDERR_FILENO}}) {
    const std::string name = "commands/" + std::to_string(number) + "." + suffix;
    const UniqueFd file(::openat(session.directory.fd(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) continue;
    const int64_t left_out = command.value(key, int64_t{0});
    session::TerminalFilter filter(session::FilterStrength::kReplay);
    const bool filtered = ::isatty(fd) != 0;
    std::string buffer(65536, '\0');
    int64_t position = 0;
    while (true) {
      const int64_t head_left = session::KeptOutput::kHeadBytes - position;
      if (head_left == 0 && left_out > 0) Complain("[" + FormatSize(left_out) + " of output are not kept]");
      const size_t most =
          head_left > 0 ? std::min<size_t>(buffer.size(), static_cast<size_t>(head_left)) : buffer.size();
      const ssize_t count = ::read(file.get(), buffer.data(), most);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      position += count;
      const std::string_view bytes(buffer.data(), static_cast<size_t>(count));
      CAISSON_TRY_VOID(linux_sys::WriteAll(fd, filtered ? filter.Filter(bytes) : std::string(bytes)));
    }
    if (filtered) CAISSON_TRY_VOID(linux_sys::WriteAll(fd, filter.Finish()));
  }
  return kExitDone;
}

std::string LineOf(const session::SessionEvent& event) {
  const json& members = event.members;
  std::string line = event.time + "  " + session::SessionEventName(event.type);
  if (members.contains("command")) line += " " + members["command"].dump();
  switch (event.type) {
    case session::SessionEventType::kCommandStarted:
      return line + "  " + TextOf(members.value("argv", json::array()));
    case session::SessionEventType::kCommandFinished:
      return line + "  exit " + members.value("exit_code", json()).dump() +
             (members.value("ending", "exited") == "exited" ? "" : " (" + members.value("ending", "") + ")");
    case session::SessionEventType::kNetworkAllowed:
    case session::SessionEventType::kNetworkDenied: {
      const json use = members.value("network", json::object());
      const int64_t port = use.value("port", int64_t{0});  // 0: the name was looked up
      line += "  " + EscapeForTerminal(use.value("name", std::string())) + (port > 0 ? ":" + std::to_string(port) : "");
      if (event.type == session::SessionEventType::kNetworkDenied)
        line += "  (" + EscapeForTerminal(use.value("reason", std::string())) +
                "; to allow it, open a session with --allow-domain " +
                EscapeForTerminal(use.value("name", std::string())) + ")";
      return line;
    }
    case session::SessionEventType::kViolation: {
      const json violation = members.value("violation", json::object());
      return line + "  " + violation.value("class", "") + " " + violation.value("reason", "");
    }
    default:
      for (const char* key : {"reason", "path", "diff_digest", "project"}) {
        if (members.contains(key) && members[key].is_string())
          return line + "  " + EscapeForTerminal(members[key].get<std::string>());
      }
      return line;
  }
}

}  // namespace

int SessionList(Arguments arguments) {
  CLI::App app("List sessions, the latest first.\nUsage: caisson session list", "session list");
  bool as_json = false, live = false;
  Prepare(app, &as_json);
  app.add_flag("--live", live, "Only those that run or are idle");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<std::string> root = session::SessionsRoot();
  if (!root) return Fail(root.error());
  const Result<std::vector<session::StoredSession>> sessions = session::ListSessions(*root);
  if (!sessions) return Fail(sessions.error());
  if (as_json) {
    ordered_json list = ordered_json::array();
    for (const session::StoredSession& one : *sessions) {
      if (!live || session::IsLive(one.record.state)) list.push_back(PublicJson(one.record));
    }
    Print({{"schema_version", 1}, {"sessions", std::move(list)}});
    return kExitDone;
  }
  std::printf("%-24s  %-16s  %-9s  %-20s  %s\n", "ID", "NAME", "STATE", "OPENED", "WORKSPACE");
  for (const session::StoredSession& one : *sessions) {
    if (live && !session::IsLive(one.record.state)) continue;
    std::printf("%-24s  %-16s  %-9s  %-20s  %s\n", one.record.id.c_str(), one.record.name.c_str(),
                session::NameOf(one.record.state), one.record.created_at.substr(0, 19).c_str(),
                EscapeForTerminal(one.record.workspace).c_str());
  }
  return kExitDone;
}

int SessionShow(Arguments arguments) {
  CLI::App app("Show a session and its commands.\nUsage: caisson session show ID", "session show");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  app.add_option("ID", id, "The session")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  ordered_json document = PublicJson(found->record);
  if (session::IsLive(found->record.state)) {
    if (Result<session::Client> client = session::Client::Connect(found->directory); client) {
      if (const Result<json> status = client->Call("status"); status) {
        document["usage"] = (*status)["usage"];
      }
    }
  }
  const Result<std::vector<json>> commands = ReadCommands(*found);
  if (!commands) return Fail(commands.error());
  document["command_list"] = *commands;
  if (as_json) {
    Print(document);
    return kExitDone;
  }
  for (const auto& [key, value] : document.items()) {
    if (key == "command_list" || key == "schema_version" || value.is_null() || value.empty()) continue;
    std::printf("%-20s %s\n", key.c_str(),
                EscapeForTerminal(value.is_string() ? value.get<std::string>() : value.dump()).c_str());
  }
  for (const json& command : *commands) {
    std::printf("command %-4s %-8s exit %-5s %s\n", command["command"].dump().c_str(),
                command.value("state", "").c_str(), command["exit_code"].dump().c_str(),
                TextOf(command.value("argv", json::array())).c_str());
  }
  return kExitDone;
}

int SessionLog(Arguments arguments) {
  CLI::App app("What happened in a session; with N, the output of command N.\nUsage: caisson session log ID [N]",
               "session log");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  int64_t number = 0;
  app.add_option("ID", id, "The session")->required();
  app.add_option("N", number, "A command's number: show what is kept of its output")->check(CLI::PositiveNumber);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  if (number > 0) {
    const Result<int> shown = ShowOutput(*found, number);
    return shown ? *shown : Fail(shown.error());
  }
  const Status read =
      session::ReadSessionEvents(found->directory.File("events.jsonl"), 0, [&](const session::SessionEvent& event) {
        std::puts(as_json ? Canonical(event).c_str() : LineOf(event).c_str());
      });
  return read ? kExitDone : Fail(read.error());
}

int SessionReplay(Arguments arguments) {
  CLI::App app(
      "Show a session's output again as it came. Escape sequences that could harm the terminal are removed.\n"
      "Usage: caisson session replay ID [--speed X]",
      "session replay");
  Prepare(app);
  std::string id;
  double speed = 1;
  double longest_pause = 2;
  app.add_option("ID", id, "The session")->required();
  app.add_option("--speed", speed, "Times as fast; 0: at once")->check(CLI::Range(0.0, 1e6));
  app.add_option("--max-pause", longest_pause, "Longest pause in seconds; default 2")->check(CLI::Range(0.0, 3600.0));
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  Result<session::TranscriptReader> reader = session::TranscriptReader::Open(found->directory.fd(), "transcript.cast");
  if (!reader) return Fail(reader.error());
  session::TerminalFilter filter(session::FilterStrength::kReplay);
  int64_t last_us = 0;
  while (true) {
    Result<std::optional<session::TranscriptEvent>> event = reader->Next();
    if (!event) return Fail(event.error());
    if (!*event) break;
    const session::TranscriptEvent& one = **event;
    if (speed > 0) {
      const double seconds = std::min(static_cast<double>(one.time_us - last_us) / 1e6 / speed, longest_pause);
      ::poll(nullptr, 0, static_cast<int>(std::lround(std::max(0.0, seconds) * 1000)));
    }
    last_us = one.time_us;
    std::string text;
    using Kind = session::TranscriptEvent::Kind;
    if (one.kind == Kind::kOutput) text = filter.Filter(one.bytes);
    if (one.kind == Kind::kCommandBegan) text = "$ " + EscapeForTerminal(one.bytes) + "\r\n";
    if (const Status written = linux_sys::WriteAll(STDOUT_FILENO, text); !written) return Fail(written.error());
  }
  const Status written = linux_sys::WriteAll(STDOUT_FILENO, filter.Finish());
  return written ? kExitDone : Fail(written.error());
}

int SessionStop(Arguments arguments) {
  CLI::App app("End a session. Its changes, transcript and events stay.\nUsage: caisson session stop ID",
               "session stop");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  app.add_option("ID", id, "The session")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  if (session::IsLive(found->record.state)) {
    Result<session::Client> client = session::Client::Connect(found->directory);
    if (client) {
      if (const Status stopped = client->Stop("stop"); !stopped) return Fail(stopped.error());
    } else if (client.error().kind != ErrorKind::kConflict) {
      return Fail(client.error());
    }
    Result<session::Record> record = session::ReadSettledRecord(found->directory);
    if (!record) return Fail(record.error());
    found->record = *std::move(record);
  }
  if (as_json)
    Print(PublicJson(found->record));
  else
    std::printf("%s %s\n", found->record.name.c_str(), session::NameOf(found->record.state));
  return kExitDone;
}

int SessionRemove(Arguments arguments) {
  CLI::App app("Remove sessions with everything that is kept of them.\nUsage: caisson session rm ID...", "session rm");
  bool as_json = false, force = false;
  Prepare(app, &as_json);
  std::vector<std::string> ids;
  app.add_option("ID", ids, "The sessions")->required();
  app.add_flag("-f,--force", force, "End a session that still runs");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  ordered_json removed = ordered_json::array();
  for (const std::string& id : ids) {
    const Result<session::StoredSession> found = FindSession(id);
    if (!found) return Fail(found.error());
    if (session::IsLive(found->record.state)) {
      if (!force)
        return Fail(Error::Conflict(found->record.name + " is " + session::NameOf(found->record.state) +
                                    ": stop it first, or use --force"));
      Result<session::Client> client = session::Client::Connect(found->directory);
      if (client) {
        if (const Status stopped = client->Stop("removed"); !stopped) return Fail(stopped.error());
      } else if (found->directory.HasSupervisor()) {
        return Fail(client.error());
      }
    }
    if (const Status gone = found->directory.Remove(); !gone) return Fail(gone.error());
    removed.push_back(found->record.id);
    if (!as_json) std::printf("removed %s\n", found->record.name.c_str());
  }
  if (as_json) Print({{"schema_version", 1}, {"removed", std::move(removed)}});
  return kExitDone;
}

}  // namespace caisson::cli
