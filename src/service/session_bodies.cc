#include "service/session_bodies.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/words.h"
#include "policy/syntax.h"
#include "session/directory.h"
#include "verify/json_fields.h"
#include "verify/request_fields.h"
#include "verify/request_source.h"

namespace caisson::service {

using nlohmann::json;
using verify::FieldError;

namespace {

Result<std::string> ReadName(const json& value, const std::string& path) {
  CAISSON_TRY(std::string name, verify::ReadString(value, path));
  if (!session::IsSessionName(name))
    return FieldError(path,
                      "must be 1 to 64 of a-z, 0-9, \".\", \"_\" and \"-\", begin with a letter or a digit, and not "
                      "look like an id");
  return name;
}

Result<bool> ReadFlag(const json& value, const std::string& path) {
  if (!value.is_boolean()) return verify::WrongTypeError(path, "a boolean", value);
  return value.get<bool>();
}

// Where commands of the sandbox's own user run; others do not exist in it.
Status RefuseOtherUsers(const json& value) {
  CAISSON_TRY(const std::string user, verify::ReadString(value, "user"));
  if (user.empty() || user == "caisson" || user == "sandbox" || user == "1000") return {};
  return FieldError("user", "commands run as the one user that the sandbox has; leave it out");
}

}  // namespace

Result<OpenBody> ReadOpenBody(const json& body) {
  CAISSON_TRY_VOID(verify::ExpectObject(
      body, "", {"name", "project", "files", "profile", "network", "limits", "env", "idle_ms", "ttl_ms", "labels"}));
  OpenBody open;
  session::OpenRequest& request = open.request;
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "name", request.name, ReadName));
  CAISSON_TRY_VOID(
      verify::ReadOptional(body, "", "project", request.project, verify::ReadText, policy::FaultInHostPath));
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "profile", request.profile, verify::ReadProfile));
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "network", request.network, verify::ReadNetwork));
  verify::RequestedLimits limits;
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "limits", limits, verify::ReadLimits));
  if (limits.budget_ms) return FieldError("limits.budget_ms", "a session has ttl_ms instead");
  request.limits = limits;
  if (limits.scratch_bytes) request.disk_bytes = limits.scratch_bytes;
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "env", request.env, verify::ReadEnvironment));
  CAISSON_TRY_VOID(
      verify::ReadOptional(body, "", "idle_ms", request.idle_ms, verify::ReadInteger, 1000, policy::kMaxTimeoutMs));
  CAISSON_TRY_VOID(
      verify::ReadOptional(body, "", "ttl_ms", request.ttl_ms, verify::ReadInteger, 1000, policy::kMaxTimeoutMs));
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "labels", request.labels, verify::ReadLabels));
  const json* files = verify::FindMember(body, "files");
  if (files != nullptr && !request.project.empty())
    return FieldError("files", "a session begins with files or with a project, not with both");
  if (files != nullptr && !(files->is_object() && files->empty())) {
    CAISSON_TRY(open.files, verify::ReadFiles(*files, "files"));
  }
  request.workspace_mode = request.project.empty() ? session::WorkspaceMode::kEmpty : session::WorkspaceMode::kCow;
  request.role = "submitter";
  // SECURITY: only the profile and the operator's overrides widen anything; a caller's body may only tighten.
  request.from_command_line = false;
  return open;
}

Result<ForkBody> ReadForkBody(const json& body) {
  CAISSON_TRY_VOID(verify::ExpectObject(body, "", {"name", "labels", "idle_ms", "ttl_ms"}));
  ForkBody fork;
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "name", fork.name, ReadName));
  if (const json* labels = verify::FindMember(body, "labels")) {
    CAISSON_TRY(fork.labels, verify::ReadLabels(*labels, "labels"));
  }
  for (const auto& [name, value] : {std::pair{"idle_ms", &fork.idle_ms}, std::pair{"ttl_ms", &fork.ttl_ms}}) {
    const json* member = verify::FindMember(body, name);
    if (member == nullptr) continue;
    CAISSON_TRY(*value, verify::ReadInteger(*member, name, 1000, policy::kMaxTimeoutMs));
  }
  return fork;
}

Result<ExecBody> ReadExecBody(const json& body) {
  CAISSON_TRY_VOID(
      verify::ExpectObject(body, "", {"argv", "command", "env", "cwd", "stdin", "stdin_open", "timeout_ms", "user"}));
  ExecBody exec;
  json line = json::object();
  const json* argv = verify::FindMember(body, "argv");
  const json* command = verify::FindMember(body, "command");
  if ((argv != nullptr) == (command != nullptr))
    return Error::Invalid("argv: give either argv, a list of words, or command, a line for sh -c");
  if (command != nullptr) {
    CAISSON_TRY(std::string text, verify::ReadStringWithoutNul(*command, "command"));
    line["argv"] = {"/bin/sh", "-c", std::move(text)};
  } else {
    line["argv"] = *argv;
  }
  if (const json* env = verify::FindMember(body, "env")) line["env"] = *env;
  CAISSON_TRY(verify::CommandLine words, verify::ReadCommandLine(line, "", session::kMostArgvEnvBytes));
  exec.command.argv = std::move(words.argv);
  exec.command.env = std::move(words.env);
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "cwd", exec.command.cwd, verify::ReadText, policy::FaultInPath));
  // The sandbox's own tree has no other root: any path inside will do.
  if (exec.command.cwd.front() != '/') exec.command.cwd = "/workspace/" + exec.command.cwd;
  if (const json* input = verify::FindMember(body, "stdin")) {
    CAISSON_TRY(exec.input, verify::ReadFileBytes(*input, "stdin"));
    exec.command.input = true;
  }
  CAISSON_TRY_VOID(verify::ReadOptional(body, "", "stdin_open", exec.input_open, ReadFlag));
  exec.command.input = exec.command.input || exec.input_open;
  if (const json* timeout = verify::FindMember(body, "timeout_ms")) {
    CAISSON_TRY(exec.command.timeout_ms, verify::ReadInteger(*timeout, "timeout_ms", 0, policy::kMaxTimeoutMs));
    exec.has_timeout = true;
  }
  if (const json* user = verify::FindMember(body, "user")) CAISSON_TRY_VOID(RefuseOtherUsers(*user));
  // It goes on when this service ends, and without a reader of its output.
  exec.command.detached = true;
  return exec;
}

Result<int> ReadSignalBody(const json& body) {
  CAISSON_TRY_VOID(verify::ExpectObject(body, "", {"signal"}));
  CAISSON_TRY(const json* value, verify::RequireMember(body, "", "signal"));
  if (value->is_number()) {
    CAISSON_TRY(const int64_t number, verify::ReadInteger(*value, "signal", 1, 64));
    return static_cast<int>(number);
  }
  CAISSON_TRY(std::string name, verify::ReadString(*value, "signal"));
  if (name.rfind("SIG", 0) == 0) name = name.substr(3);
  for (int number = 1; number < NSIG; ++number) {
    const char* known = ::sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return FieldError("signal", Quoted(name) + " is no signal; for example TERM, INT or KILL");
}

}  // namespace caisson::service
