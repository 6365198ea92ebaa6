#include "session/command.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "linux/files.h"
#include "session/json_bytes.h"
#include "verify/json_fields.h"
#include "verify/request.h"
#include "verify/result.h"

namespace caisson::session {

using nlohmann::json;

namespace {

Result<bool> ReadFlag(const json& value, const std::string& path) {
  if (!value.is_boolean()) return verify::WrongTypeError(path, "a boolean", value);
  return value.get<bool>();
}

const char* NameOf(Ending ending) {
  switch (ending) {
    case Ending::kExited:
      return "exited";
    case Ending::kSignaled:
      return "signaled";
    case Ending::kTimeout:
      return "timeout";
    case Ending::kMemoryLimit:
      return "memory_limit";
    case Ending::kProcessLimit:
      return "process_limit";
    case Ending::kOutputLimit:
      return "output_limit";
    case Ending::kSyscall:
      return "syscall_denied";
    case Ending::kCancelled:
      return "cancelled";
    case Ending::kNotExecutable:
      return "not_executable";
    case Ending::kLost:
      return "lost";
  }
  return "lost";
}

}  // namespace

json ToJson(const CommandRequest& request) {
  std::vector<std::string> names, values;
  for (const auto& [name, value] : request.env) {
    names.push_back(name);
    values.push_back(value);
  }
  return {{"argv", BytesToJson(request.argv)},
          {"env_names", BytesToJson(names)},
          {"env_values", BytesToJson(values)},
          {"cwd", BytesToJson(std::string_view(request.cwd))},
          {"timeout_ms", request.timeout_ms},
          {"terminal", request.terminal},
          {"input", request.input},
          {"detached", request.detached},
          {"rows", request.rows},
          {"columns", request.columns}};
}

Result<CommandRequest> ReadCommandRequest(const json& message) {
  constexpr size_t kMostWords = 100'000;
  CommandRequest request;
  CAISSON_TRY(request.argv, verify::ReadRequired(message, "", "argv", BytesListFromJson, kMostWords));
  if (request.argv.empty() || request.argv[0].empty()) return Error::Invalid("the command's name is empty");
  std::vector<std::string> names, values;
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "env_names", names, BytesListFromJson, kMostWords));
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "env_values", values, BytesListFromJson, kMostWords));
  if (names.size() != values.size()) return Error::Invalid("env_values: does not fit env_names");
  size_t bytes = 0;
  for (const std::string& word : request.argv) bytes += word.size() + 9;
  for (size_t i = 0; i < names.size(); ++i) {
    bytes += names[i].size() + values[i].size() + 10;
    request.env.emplace_back(std::move(names[i]), std::move(values[i]));
  }
  if (bytes > kMostArgvEnvBytes)
    return Error::Invalid("the command and its environment are too long: use a file or standard input");
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "cwd", request.cwd, BytesFromJson));
  if (request.cwd.empty() || request.cwd[0] != '/') return Error::Invalid("cwd: must be an absolute path");
  CAISSON_TRY_VOID(verify::ReadOptional(message, "", "timeout_ms", request.timeout_ms, verify::ReadInteger, 0,
                                        policy::kMaxTimeoutMs));
  for (const auto& [name, flag] : {std::pair{"terminal", &request.terminal}, std::pair{"input", &request.input},
                                   std::pair{"detached", &request.detached}})
    CAISSON_TRY_VOID(verify::ReadOptional(message, "", name, *flag, ReadFlag));
  for (const auto& [name, size] : {std::pair{"rows", &request.rows}, std::pair{"columns", &request.columns}}) {
    int64_t number = *size;
    CAISSON_TRY_VOID(verify::ReadOptional(message, "", name, number, verify::ReadInteger, 0, 10000));
    *size = static_cast<uint16_t>(number);
  }
  return request;
}

CommandEnd EndOf(const CommandOutcome& outcome) {
  CommandEnd end;
  end.ending = NameOf(outcome.ending);
  end.signal = outcome.signal;
  end.exec_errno = outcome.exec_errno;
  end.duration_ms = outcome.duration_ms;
  end.left_processes = outcome.left_processes;
  end.usage = verify::ToJson(outcome.usage);
  switch (outcome.ending) {
    case Ending::kTimeout:
      end.exit_code = 124;
      break;
    case Ending::kNotExecutable:
      end.exit_code = outcome.exec_errno == ENOENT || outcome.exec_errno == ENOTDIR ? 127 : 126;
      break;
    case Ending::kCancelled:
      end.exit_code = 128 + SIGTERM;
      break;
    default:
      end.exit_code = std::clamp(outcome.exit_code, 0, 255);
  }
  return end;
}

json ToJson(const CommandEnd& end) {
  json document = {{"exit_code", end.exit_code},
                   {"ending", end.ending},
                   {"duration_ms", end.duration_ms},
                   {"left_processes", end.left_processes},
                   {"usage", end.usage}};
  if (end.signal != 0) document["signal"] = end.signal;
  if (end.exec_errno != 0) document["exec_errno"] = end.exec_errno;
  return document;
}

Result<KeptOutput> KeptOutput::Create(int directory, const std::string& name) {
  KeptOutput kept;
  kept.file_.Reset(::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!kept.file_) return Error::System(errno, "keep the output of a command");
  return kept;
}

void KeptOutput::Add(std::string_view bytes) {
  bytes = bytes.substr(0, static_cast<size_t>(std::max<int64_t>(0, kHeadBytes - head_)));
  // A full disk costs what is kept, not the command.
  if (bytes.empty() || !linux_sys::WriteAll(file_.get(), bytes)) return;
  head_ += static_cast<int64_t>(bytes.size());
}

int64_t KeptOutput::Finish(const ReplayBuffer& kept) {
  if (finished_) return 0;
  finished_ = true;
  const ReplayBuffer::Piece tail = kept.ReadFrom(head_);
  if (!tail.bytes.empty()) (void)linux_sys::WriteAll(file_.get(), tail.bytes);
  file_.Reset();
  return tail.missing;
}

json ToJson(const SessionCommand& command) {
  const auto size = [](const std::unique_ptr<OutputPump>& pump) { return pump ? pump->total() : 0; };
  const auto missing = [](const std::unique_ptr<OutputPump>& pump) -> int64_t {
    return pump ? std::max<int64_t>(0, pump->kept().begin() - KeptOutput::kHeadBytes) : 0;
  };
  json document = {{"command", command.number},
                   {"argv", BytesToJson(command.request.argv)},
                   {"cwd", BytesToJson(std::string_view(command.request.cwd))},
                   {"terminal", command.request.terminal},
                   {"detached", command.request.detached},
                   {"state", command.running() ? "running" : "ended"},
                   {"started_at", command.started_at},
                   {"ended_at", command.ended_at.empty() ? json() : json(command.ended_at)},
                   {"stdout_bytes", size(command.output)},
                   {"stderr_bytes", size(command.error)},
                   {"stdout_left_out", missing(command.output)},
                   {"stderr_left_out", missing(command.error)},
                   {"exit_code", nullptr}};
  if (command.end) document.update(ToJson(*command.end));
  return document;
}

}  // namespace caisson::session
