// caisson session approvals, approve, deny and forward.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "policy/syntax.h"

namespace caisson::cli {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

Result<json> WaitingIn(const session::StoredSession& session) {
  CAISSON_TRY(session::Client client, session::Client::Connect(session.directory));
  CAISSON_TRY(const json reply, client.Call("approvals"));
  return reply.value("approvals", json::array());
}

Result<int> List(const std::string& id, bool as_json) {
  std::vector<session::StoredSession> sessions;
  if (id.empty()) {
    CAISSON_TRY(const std::string root, session::SessionsRoot());
    CAISSON_TRY(sessions, session::ListSessions(root));
  } else {
    CAISSON_TRY(session::StoredSession found, FindSession(id));
    sessions.push_back(std::move(found));
  }
  ordered_json documents = ordered_json::array();
  for (const session::StoredSession& session : sessions) {
    if (!session::IsLive(session.record.state)) continue;
    const Result<json> waiting = WaitingIn(session);
    // One that has just ended asks nothing any more.
    if (!waiting && id.empty()) continue;
    if (!waiting) return waiting.error();
    for (const json& item : *waiting) {
      if (as_json) {
        documents.push_back(ordered_json(item.value("approval", json::object())));
        continue;
      }
      const json approval = item.value("approval", json::object());
      std::printf("%s  %s  until %s\n  %s\n", EscapeForTerminal(approval.value("approval_id", "")).c_str(),
                  EscapeForTerminal(session.record.name).c_str(),
                  EscapeForTerminal(approval.value("expires_at", "")).c_str(),
                  EscapeForTerminal(item.value("text", "")).c_str());
    }
  }
  if (as_json) Print({{"schema_version", 1}, {"approvals", std::move(documents)}});
  return kExitDone;
}

struct Answer {
  std::string id, approval, scope = "once", reason;
  bool json = false, grants = false;
};

Result<int> Send(const Answer& answer) {
  CAISSON_TRY(const session::StoredSession session, FindSession(answer.id));
  CAISSON_TRY(session::Client client, session::Client::Connect(session.directory));
  Result<json> reply =
      answer.grants ? client.Approve(answer.approval, answer.scope) : client.Deny(answer.approval, answer.reason);
  if (!reply && reply.error().kind == ErrorKind::kConflict) {
    Complain(reply.error().message);
    return kExitState;
  }
  if (!reply) return std::move(reply).error();
  const std::string state = reply->value("state", ""), scope = reply->value("scope", "");
  if (answer.json) {
    ordered_json document = {{"schema_version", 1}, {"approval_id", answer.approval}, {"state", state}};
    if (!scope.empty()) document["scope"] = scope;
    Print(document);
  } else {
    std::printf("%s  %s%s\n", EscapeForTerminal(answer.approval).c_str(), state.c_str(),
                scope.empty() ? "" : (" (" + scope + ")").c_str());
  }
  return kExitDone;
}

int AnswerCommand(CLI::App& app, Arguments arguments, Answer answer) {
  Prepare(app, &answer.json);
  app.add_option("ID", answer.id, "The session")->required();
  app.add_option("APPROVAL", answer.approval, "Its id, as session approvals shows it")->required();
  if (answer.grants) {
    app.add_option("--scope", answer.scope, "once: one connection (default); session: until the session ends")
        ->check(CLI::IsMember({"once", "session"}));
  } else {
    app.add_option("--reason", answer.reason, "Why; the program that asked is told");
  }
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<int> sent = Send(answer);
  return sent ? *sent : Fail(sent.error());
}

// "PORT" or "PORT:INSIDE"; PORT may be 0, for any that is free.
Result<std::pair<int, int>> ReadPorts(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string outside = text.substr(0, colon);
  const std::string inside = colon == std::string::npos ? outside : text.substr(colon + 1);
  for (const std::string& port : {inside, outside == "0" ? inside : outside}) {
    if (const policy::Fault fault = policy::FaultInPort(port))
      return Error::Invalid(EscapeForTerminal(text) + ": " + EscapeForTerminal(port) + " " + *fault);
  }
  return std::pair{std::stoi(outside), std::stoi(inside)};
}

Result<int> Forward(const std::string& id, const std::vector<std::string>& ports, bool as_json) {
  const UniqueFd signals(TakeSignals());
  CAISSON_TRY(const session::StoredSession session, FindSession(id));
  CAISSON_TRY(session::Client client, session::Client::Connect(session.directory));
  ordered_json documents = ordered_json::array();
  for (const std::string& text : ports) {
    CAISSON_TRY(const auto pair, ReadPorts(text));
    CAISSON_TRY(const json reply, client.Call("forward", {{"port", pair.first}, {"inside_port", pair.second}}));
    const int port = reply.value("port", 0);
    documents.push_back({{"address", "127.0.0.1"}, {"port", port}, {"inside_port", pair.second}});
    if (!as_json) std::printf("127.0.0.1:%d leads to port %d of %s\n", port, pair.second, session.record.name.c_str());
  }
  if (as_json) Print({{"schema_version", 1}, {"id", session.record.id}, {"forwards", std::move(documents)}});
  std::fflush(stdout);
  while (true) {
    struct pollfd wait[] = {{client.fd(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
    if (::poll(wait, 2, -1) < 0 && errno != EINTR) return Error::System(errno, "poll");
    if (wait[1].revents != 0) {
      struct signalfd_siginfo info {};
      if (::read(signals.get(), &info, sizeof(info)) == ssize_t{sizeof(info)} && info.ssi_signo != SIGWINCH)
        return kExitDone;
    }
    if (wait[0].revents == 0) continue;
    CAISSON_TRY(const bool alive, client.Receive());
    while (client.TakeEvent()) {
    }
    if (alive) continue;
    Complain("the session has ended, and with it the forward");
    return kExitDone;
  }
}

}  // namespace

int SessionApprovals(Arguments arguments) {
  CLI::App app(
      "What programs in a session ask for and a person must decide.\n"
      "Usage: caisson session approvals [ID]",
      "session approvals");
  app.footer(R"(
Without ID: of all living sessions. A question that is not answered in time is denied. An answer is for exactly what was
asked, under the policy as it was then: where the policy has changed, approve fails with exit code 5 and the question is
asked again under another id.

Examples:
  caisson session approvals
  caisson session approve fix apr_0123456789abcdef --scope session
  caisson session deny fix apr_0123456789abcdef --reason "use the mirror")");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  app.add_option("ID", id, "The session; default: all that live");
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<int> listed = List(id, as_json);
  return listed ? *listed : Fail(listed.error());
}

int SessionApprove(Arguments arguments) {
  CLI::App app("Grant what a program in a session asks for.\nUsage: caisson session approve ID APPROVAL",
               "session approve");
  Answer answer;
  answer.grants = true;
  return AnswerCommand(app, std::move(arguments), std::move(answer));
}

int SessionDeny(Arguments arguments) {
  CLI::App app("Deny what a program in a session asks for.\nUsage: caisson session deny ID APPROVAL", "session deny");
  return AnswerCommand(app, std::move(arguments), Answer());
}

int SessionForward(Arguments arguments) {
  CLI::App app(
      "Reach servers in a session at 127.0.0.1 of this machine.\n"
      "Usage: caisson session forward ID PORT[:INSIDE]...",
      "session forward");
  app.footer("\nThe ports are open until this command or the session ends. PORT 0 stands for any that is free.");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  std::vector<std::string> ports;
  app.add_option("ID", id, "The session")->required();
  app.add_option("PORT", ports, "PORT outside, and the same or INSIDE in the session")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<int> forwarded = Forward(id, ports, as_json);
  return forwarded ? *forwarded : Fail(forwarded.error());
}

}  // namespace caisson::cli
