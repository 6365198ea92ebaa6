// Commands of sessions: started through the supervisor, afterwards read from the session's directory, so that a command
// whose session has ended answers as one that still runs does.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/utf8.h"
#include "linux/files.h"
#include "service/engine.h"
#include "service/session_bodies.h"
#include "service/sessions.h"
#include "verify/json_fields.h"
#include "verify/output_text.h"

namespace caisson::service {

using nlohmann::json;
using session::SessionDirectory;

namespace {

// The supervisor's own record of a command; its argv may be long.
constexpr size_t kMaxCommandBytes = size_t{8} << 20;
// What is kept of a stream is its beginning and its end; see session::KeptOutput.
constexpr int64_t kMostKept = session::KeptOutput::kHeadBytes + static_cast<int64_t>(session::ReplayBuffer::kCapacity);

Error NoSuchCommand(int64_t number) { return Error::NotFound("there is no command " + std::to_string(number)); }

Result<json> ReadCommand(const SessionDirectory& directory, int64_t number) {
  const std::string name = "commands/" + std::to_string(number) + ".json";
  const Result<std::string> text = directory.ReadText(name.c_str(), kMaxCommandBytes);
  if (!text && text.error().kind == ErrorKind::kNotFound) return NoSuchCommand(number);
  if (!text) return text.error();
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxCommandBytes;
  return verify::ReadJson(*text, bounds);
}

struct KeptStream {
  UniqueFd file;
  int64_t size = 0;      // of the file
  int64_t total = 0;     // of the stream
  int64_t left_out = 0;  // behind the first kHeadBytes
};

Result<KeptStream> OpenKept(const SessionDirectory& directory, const json& command, int64_t number, bool error) {
  KeptStream kept;
  const std::string name = "commands/" + std::to_string(number) + (error ? ".err" : ".out");
  kept.file.Reset(::openat(directory.fd(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!kept.file && errno == ENOENT) return kept;  // a terminal has no standard error
  struct stat info {};
  if (!kept.file || ::fstat(kept.file.get(), &info) != 0) return Error::System(errno, "open the output of a command");
  kept.size = info.st_size;
  kept.total = std::max(kept.size, command.value(error ? "stderr_bytes" : "stdout_bytes", int64_t{0}));
  kept.left_out = kept.total - kept.size;
  return kept;
}

Status AddText(json& document, const char* name, const KeptStream& kept) {
  CapturedStream stream;
  const int64_t size = std::min(kept.size, kMostKept);
  const int64_t head = std::min(size, session::KeptOutput::kHeadBytes);
  if (kept.file) {
    CAISSON_TRY(stream.head, linux_sys::ReadAt(kept.file.get(), 0, head));
    CAISSON_TRY(stream.tail, linux_sys::ReadAt(kept.file.get(), head, size - head));
  }
  stream.total_bytes = static_cast<uint64_t>(kept.total);
  stream.dropped_bytes = static_cast<uint64_t>(kept.total - size);
  const bool is_text = IsValidUtf8(stream.head + stream.tail);
  const verify::OutputText output({&stream});
  std::string text;
  CAISSON_TRY_VOID(output.WriteText([&](std::string_view piece) -> Status {
    text += piece;
    return {};
  }));
  document[name] = std::move(text);
  if (is_text && !output.is_binary()) return {};
  std::string encoded;
  CAISSON_TRY_VOID(output.WriteBase64([&](std::string_view piece) -> Status {
    encoded += piece;
    return {};
  }));
  document[std::string(name) + "_base64"] = std::move(encoded);
  return {};
}

}  // namespace

Result<int64_t> Sessions::Exec(const Caller& caller, const std::string& id, const json& body) {
  CAISSON_TRY_VOID(Require(caller, Right::kSubmit));
  CAISSON_TRY(ExecBody exec, ReadExecBody(body));
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  if (!exec.has_timeout) exec.command.timeout_ms = record.command_timeout_ms;
  CAISSON_TRY(const session::RemoteCommand started, client.Exec(exec.command));
  context_.metrics.Add("caisson_session_commands_total");
  const int64_t number = started.number;
  if (!exec.command.input) return number;
  Result<session::RemoteCommand> attached = client.Attach(started.number, true);
  // A command that has ended already takes no input.
  if (!attached || !attached->input) return number;
  monitor_->AddInput(id, number, std::move(attached->input));
  (void)monitor_->Feed(id, number, std::move(exec.input), !exec.input_open);
  return number;
}

Result<json> Sessions::Command(const Caller& caller, const std::string& id, int64_t number, bool output) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kRead, id));
  CAISSON_TRY(json command, ReadCommand(directory, number));
  json document = {{"exec", number}, {"session", id}};
  for (const char* name : {"argv", "cwd", "state", "started_at", "ended_at", "exit_code", "ending", "signal",
                           "duration_ms", "left_processes", "usage", "stdout_bytes", "stderr_bytes"}) {
    if (const json* member = verify::FindMember(command, name)) document[name] = *member;
  }
  const bool running = document.value("state", "") == "running";
  if (running && !directory.HasSupervisor()) {
    // Its supervisor died before it could write down how the command ended, and the command died with it.
    document["state"] = "ended";
    document["ending"] = "lost";
  } else if (running) {
    return document;
  }
  if (!output) return document;
  const ByteBudget::Share memory = context_.large_documents.Take(8 * kMostKept);
  int64_t left_out = 0;
  for (const bool error : {false, true}) {
    CAISSON_TRY(const KeptStream kept, OpenKept(directory, command, number, error));
    left_out += kept.left_out;
    CAISSON_TRY_VOID(AddText(document, error ? "stderr" : "stdout", kept));
  }
  document["truncated"] = left_out > 0;
  return document;
}

Result<SessionOutput> Sessions::Output(const Caller& caller, const std::string& id, int64_t number, bool error,
                                       int64_t offset, int64_t max_bytes) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kRead, id));
  CAISSON_TRY(const json command, ReadCommand(directory, number));
  // Read before the file: what the file holds then is complete.
  const bool ended = command.value("state", "") != "running" || !directory.HasSupervisor();
  CAISSON_TRY(const KeptStream kept, OpenKept(directory, command, number, error));
  constexpr int64_t kHead = session::KeptOutput::kHeadBytes;
  SessionOutput piece;
  // The file's bytes behind the head are the end of the stream.
  const int64_t gap = ended && kept.size > kHead ? kept.left_out : 0;
  int64_t at = offset;
  if (gap > 0 && offset >= kHead) at = std::max(offset - gap, kHead);
  const int64_t readable = ended ? kept.size : std::min(kept.size, kHead);
  int64_t size = std::clamp<int64_t>(readable - at, 0, max_bytes);
  // Not across the gap.
  if (gap > 0 && at < kHead) size = std::min(size, kHead - at);
  if (size > 0) {
    CAISSON_TRY(piece.bytes, linux_sys::ReadAt(kept.file.get(), at, size));
  }
  piece.offset = gap > 0 && at >= kHead ? at + gap : at;
  piece.more = at + size < readable;
  piece.ended = ended && !piece.more;
  return piece;
}

Status Sessions::WriteInput(const Caller& caller, const std::string& id, int64_t number, std::string bytes, bool end) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(const json command, ReadCommand(directory, number));
  if (command.value("state", "") != "running")
    return Error::Conflict("command " + std::to_string(number) + " has ended");
  if (!monitor_->HasInput(id, number)) {
    // An earlier service held it, or the command was started elsewhere.
    CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
    CAISSON_TRY(session::RemoteCommand attached, client.Attach(static_cast<uint32_t>(number), true));
    if (!attached.input)
      return Error::Conflict("command " + std::to_string(number) + " takes no input: start it with stdin_open");
    monitor_->AddInput(id, number, std::move(attached.input));
  }
  Status fed = monitor_->Feed(id, number, std::move(bytes), end);
  if (!fed && fed.error().kind == ErrorKind::kNotFound) return Error::Conflict(fed.error().message);
  return fed;
}

Status Sessions::Signal(const Caller& caller, const std::string& id, int64_t number, const json& body) {
  CAISSON_TRY(const int signal, ReadSignalBody(body));
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY_VOID(ReadCommand(directory, number));
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  const Result<json> told = client.Call("signal", {{"command", number}, {"signal", signal}});
  // The supervisor forgets commands that ended long ago.
  if (!told && told.error().kind == ErrorKind::kNotFound)
    return Error::Conflict("command " + std::to_string(number) + " has ended");
  if (!told) return told.error();
  return {};
}

}  // namespace caisson::service
