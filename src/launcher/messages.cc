#include "launcher/messages.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace caisson::launcher {

namespace {

constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxErrno = 4095;
constexpr int64_t kMaxTimeoutMs = int64_t{366} * 24 * 3600 * 1000;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxSentenceBytes = 65536;
constexpr size_t kMaxPathBytes = 65536;  // of collected files: the deepest path that the collector reads
constexpr size_t kMaxArgumentPathBytes = 4096;
constexpr size_t kMaxArgumentBytes = size_t{2} << 20;
constexpr size_t kMaxArguments = 65'536;
constexpr size_t kMaxStreamBytes = size_t{1} << 30;
constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxViolations = 1024;
constexpr size_t kMaxNotices = 512;  // a profile may list this many probes
constexpr size_t kMaxEvidence = 64;
constexpr size_t kMaxNetworkUses = 2048;  // slightly more than the supervisor records separately
constexpr size_t kMaxGlobs = 1024;

bool HasNoNul(std::string_view text) { return text.find('\0') == std::string_view::npos; }

bool IsAbsolutePath(std::string_view path) { return !path.empty() && path[0] == '/' && HasNoNul(path); }

template <typename Side, typename Message>
void DescribeExecute(Side& side, Message& message) {
  auto& command = message.command;
  side.List("argv", command.argv, kMaxArguments,
            [&](auto& argument) { side.Text("argument", argument, kMaxArgumentBytes, HasNoNul); });
  side.List("env", command.env, kMaxArguments,
            [&](auto& variable) { side.Text("variable", variable, kMaxArgumentBytes, HasNoNul); });
  side.Text("cwd", command.cwd, kMaxArgumentPathBytes, IsAbsolutePath);
  side.Choice("io", message.io, CommandIo::Kind::kTerminal);
  side.Maybe("input", message.input, [&](auto& bytes) { side.Text("bytes", bytes, kMaxStreamBytes); });
  side.Maybe("stdin", message.stdin_fd, [&](auto& fd) { side.Descriptor("descriptor", fd); });
  side.Maybe("stdout", message.stdout_fd, [&](auto& fd) { side.Descriptor("descriptor", fd); });
  side.Maybe("stderr", message.stderr_fd, [&](auto& fd) { side.Descriptor("descriptor", fd); });
  side.Number("timeout_ms", message.timeout_ms, 0, kMaxTimeoutMs);
  side.Text("timeout_name", message.timeout_name, kMaxNameBytes);
  side.Flag("last", message.last);
  side.Number("signal_grace_ms", message.signal_grace_ms, 0, kMaxTimeoutMs);
  side.Flag("wants_output", message.wants_output);
  side.Flag("wants_violations", message.wants_violations);
}

// Checks rules that involve more than one field.
Status CheckWhole(const ExecuteMessage& message) {
  if (message.command.argv.empty() || message.command.argv[0].empty())
    return Error::Invalid("execute.argv: the program is not named");
  const bool captured = message.io == CommandIo::Kind::kCapture;
  if (captured && (message.stdin_fd || message.stdout_fd || message.stderr_fd))
    return Error::Invalid("execute.io: a captured command is joined to no descriptor");
  if (!captured && (message.input || message.wants_output))
    return Error::Invalid("execute.io: a command that is joined to descriptors is not captured");
  return {};
}

template <typename Side, typename Message>
void DescribeCollect(Side& side, Message& message) {
  side.List("globs", message.globs, kMaxGlobs, [&](auto& glob) { side.Text("glob", glob, kMaxPathBytes); });
}

template <typename Side, typename Message>
void DescribeIsolation(Side& side, Message& isolation) {
  side.List("namespaces", isolation.walls.namespaces, 16, [&](auto& name) { side.Text("name", name, kMaxNameBytes); });
  side.Flag("no_new_privileges", isolation.walls.no_new_privileges);
  side.Flag("filter", isolation.walls.filter);
  side.Number("capabilities", isolation.walls.capabilities, 0, kMaxNumber);
  side.Number("host_uid", isolation.walls.host_uid, 0, std::numeric_limits<uint32_t>::max());
  side.Flag("read_only_root", isolation.walls.read_only_root);
  side.Number("most_open_files", isolation.walls.most_open_files, 0, kMaxNumber);
  side.Text("seccomp_profile", isolation.seccomp_profile, kMaxNameBytes);
  side.Text("seccomp_sha256", isolation.seccomp_sha256, kMaxNameBytes);
  side.Number("landlock_abi", isolation.landlock_abi, 0, 1000);
  side.Choice("cgroup_driver", isolation.cgroup_driver, sandbox::CgroupDriver::kNone);
  side.Flag("own_id_range", isolation.own_id_range);
  side.Choice("start", isolation.start, sandbox::Start::kInterpreter);
  side.List("degraded", isolation.degraded, 64, [&](auto& wall) { side.Text("wall", wall, kMaxSentenceBytes); });
}

template <typename Side, typename Message>
void DescribeOutput(Side& side, Message& message) {
  side.Choice("stream", message.stream, OutputStream::kStderr);
  side.Text("bytes", message.bytes, kMaxStreamBytes);
}

template <typename Side, typename Evidence>
void DescribeEvidence(Side& side, Evidence& evidence) {
  side.List("evidence", evidence, kMaxEvidence, [&](auto& item) {
    side.Text("key", item.first, kMaxNameBytes);
    side.Value("value", item.second, kMaxSentenceBytes);
  });
}

template <typename Side, typename Message>
void DescribeNotice(Side& side, Message& notice) {
  side.Text("probe", notice.probe, kMaxPathBytes);
  side.Text("why", notice.why, kMaxSentenceBytes);
  side.Number("count", notice.count, 1, kMaxNumber);
  side.Number("time_ms", notice.time_ms, 0, kMaxNumber);
  side.Number("pid", notice.pid, 0, std::numeric_limits<int32_t>::max());
  DescribeEvidence(side, notice.evidence);
}

template <typename Side, typename Message>
void DescribeViolation(Side& side, Message& violation) {
  side.Choice("class", violation.violation_class, ViolationClass::kSyscall);
  side.Text("reason", violation.reason, kMaxNameBytes);
  side.Choice("confidence", violation.confidence, Confidence::kObserved);
  side.Number("time_ms", violation.time_ms, 0, kMaxNumber);
  side.Number("pid", violation.pid, 0, std::numeric_limits<int32_t>::max());
  DescribeEvidence(side, violation.evidence);
  side.Number("limit", violation.limit, -1, kMaxNumber);
  side.Text("suggestion", violation.suggestion, kMaxSentenceBytes);
  side.Number("count", violation.count, 1, kMaxNumber);
}

template <typename Side, typename Message>
void DescribeStream(Side& side, Message& stream) {
  side.Text("head", stream.head, kMaxStreamBytes);
  side.Text("tail", stream.tail, kMaxStreamBytes);
  side.Number("total_bytes", stream.total_bytes, 0, kMaxNumber);
  side.Number("dropped_bytes", stream.dropped_bytes, 0, kMaxNumber);
}

template <typename Side, typename Message>
void DescribeUsage(Side& side, Message& usage) {
  const auto measured = [&](const char* field, auto& value, int64_t least) {
    side.Maybe(field, value, [&](auto& number) { side.Number("value", number, least, kMaxNumber); });
  };
  measured("cpu_ms", usage.cpu_ms, -kMaxNumber);
  measured("peak_memory_bytes", usage.peak_memory_bytes, 0);
  measured("processes_peak", usage.processes_peak, 0);
  side.Number("output_bytes", usage.output_bytes, 0, kMaxNumber);
  measured("scratch_bytes", usage.scratch_bytes, 0);
  measured("throttled_ms", usage.throttled_ms, -kMaxNumber);
  measured("supervisor_cpu_ms", usage.supervisor_cpu_ms, 0);
}

template <typename Side, typename Message>
void DescribeNetworkUse(Side& side, Message& use) {
  side.Text("name", use.name, kMaxSentenceBytes);
  side.Number("port", use.port, 0, 65535);
  for (auto* text : {&use.protocol, &use.address, &use.rule, &use.reason}) side.Text("text", *text, kMaxSentenceBytes);
  side.Flag("allowed", use.allowed);
  for (auto* number : {&use.bytes_in, &use.bytes_out, &use.connections}) side.Number("count", *number, 0, kMaxNumber);
}

template <typename Side, typename Message>
void DescribeOutcome(Side& side, Message& outcome) {
  side.Choice("ending", outcome.ending, Ending::kNotExecutable);
  side.Number("exit_code", outcome.exit_code, 0, 255);
  side.Number("signal", outcome.signal, 0, 128);
  side.Number("exec_errno", outcome.exec_errno, 0, kMaxErrno);
  side.Number("duration_ms", outcome.duration_ms, 0, kMaxNumber);
  side.Flag("left_processes", outcome.left_processes);
  DescribeStream(side, outcome.stdout_stream);
  DescribeStream(side, outcome.stderr_stream);
  DescribeUsage(side, outcome.usage);
  side.List("violations", outcome.violations, kMaxViolations,
            [&](auto& violation) { DescribeViolation(side, violation); });
  side.List("notices", outcome.notices, kMaxNotices, [&](auto& notice) { DescribeNotice(side, notice); });
  side.List("network", outcome.network, kMaxNetworkUses, [&](auto& use) { DescribeNetworkUse(side, use); });
}

template <typename Side, typename Message>
void DescribeCollected(Side& side, Message& collected) {
  side.List("files", collected.files, kMaxFiles, [&](auto& file) {
    side.Text("path", file.path, kMaxPathBytes);
    side.Text("bytes", file.bytes, kMaxStreamBytes);
  });
  side.List("skipped", collected.skipped, kMaxFiles, [&](auto& line) { side.Text("line", line, kMaxSentenceBytes); });
}

template <typename Side, typename Message>
void DescribeStatus(Side& side, Message& status) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  side.List("pools", status.pools, 16, [&](auto& pool) {
    side.Text("name", pool.name, kMaxNameBytes);
    side.Number("ready", pool.ready, 0, kMost);
    side.Number("preparing", pool.preparing, 0, kMost);
    side.Number("taken", pool.taken, 0, kMost);
    side.Number("missed", pool.missed, 0, kMost);
    side.Number("died", pool.died, 0, kMost);
  });
  side.Number("interpreters_died", status.interpreters_died, 0, kMost);
}

template <typename Side, typename Message>
void DescribeError(Side& side, Message& error) {
  side.Choice("kind", error.kind, ErrorKind::kSystem);
  side.Number("errno", error.errno_value, 0, kMaxErrno);
  side.Text("message", error.message, kMaxSentenceBytes);
}

template <typename Message>
using Description = void (*)(Reader&, Message&);

template <typename Message>
Result<Message> Decode(const char* name, std::string_view bytes, Description<Message> describe) {
  Reader reader(name, bytes, {});
  Message message;
  describe(reader, message);
  CAISSON_TRY_VOID(reader.Finish());
  return message;
}

template <typename Message>
Result<Encoded> EncodeBy(const char* name, const Message& message, void (*describe)(Writer&, const Message&)) {
  Writer writer(name);
  describe(writer, message);
  return writer.Finish();
}

}  // namespace

Result<Encoded> Encode(const ExecuteMessage& message) {
  CAISSON_TRY_VOID(CheckWhole(message));
  return EncodeBy("execute", message, DescribeExecute<Writer, const ExecuteMessage>);
}
Result<Encoded> Encode(const CollectMessage& message) {
  return EncodeBy("collect", message, DescribeCollect<Writer, const CollectMessage>);
}
Result<Encoded> Encode(const sandbox::Isolation& isolation) {
  return EncodeBy("isolation", isolation, DescribeIsolation<Writer, const sandbox::Isolation>);
}
Result<Encoded> Encode(const OutputMessage& message) {
  return EncodeBy("output", message, DescribeOutput<Writer, const OutputMessage>);
}
Result<Encoded> Encode(const Violation& violation) {
  return EncodeBy("violation", violation, DescribeViolation<Writer, const Violation>);
}
Result<Encoded> Encode(const CommandOutcome& outcome) {
  return EncodeBy("outcome", outcome, DescribeOutcome<Writer, const CommandOutcome>);
}
Result<Encoded> Encode(const sandbox::Collected& collected) {
  return EncodeBy("collected", collected, DescribeCollected<Writer, const sandbox::Collected>);
}
Result<Encoded> Encode(const StatusMessage& status) {
  return EncodeBy("status", status, DescribeStatus<Writer, const StatusMessage>);
}
Encoded Encode(const Error& error) {
  Error fitting = error;
  if (fitting.errno_value < 0 || fitting.errno_value > kMaxErrno) fitting.errno_value = 0;
  fitting.message.resize(std::min(fitting.message.size(), kMaxSentenceBytes));
  Result<Encoded> encoded = EncodeBy("error", fitting, DescribeError<Writer, const Error>);
  CAISSON_CHECK(encoded.has_value());
  return *std::move(encoded);
}

Result<ExecuteMessage> DecodeExecute(std::string_view bytes, std::vector<UniqueFd> fds) {
  Reader reader("execute", bytes, std::move(fds));
  ExecuteMessage message;
  DescribeExecute(reader, message);
  CAISSON_TRY_VOID(reader.Finish());
  CAISSON_TRY_VOID(CheckWhole(message));
  return message;
}
Result<CollectMessage> DecodeCollect(std::string_view bytes) {
  return Decode<CollectMessage>("collect", bytes, DescribeCollect<Reader, CollectMessage>);
}
Result<sandbox::Isolation> DecodeIsolation(std::string_view bytes) {
  return Decode<sandbox::Isolation>("isolation", bytes, DescribeIsolation<Reader, sandbox::Isolation>);
}
Result<OutputMessage> DecodeOutput(std::string_view bytes) {
  return Decode<OutputMessage>("output", bytes, DescribeOutput<Reader, OutputMessage>);
}
Result<Violation> DecodeViolation(std::string_view bytes) {
  return Decode<Violation>("violation", bytes, DescribeViolation<Reader, Violation>);
}
Result<CommandOutcome> DecodeOutcome(std::string_view bytes) {
  return Decode<CommandOutcome>("outcome", bytes, DescribeOutcome<Reader, CommandOutcome>);
}
Result<sandbox::Collected> DecodeCollected(std::string_view bytes) {
  return Decode<sandbox::Collected>("collected", bytes, DescribeCollected<Reader, sandbox::Collected>);
}
Result<StatusMessage> DecodeStatus(std::string_view bytes) {
  return Decode<StatusMessage>("status", bytes, DescribeStatus<Reader, StatusMessage>);
}
Error DecodeError(std::string_view bytes) {
  Reader reader("error", bytes, {});
  Error error;
  DescribeError(reader, error);
  Status status = reader.Finish();
  return status ? std::move(error) : std::move(status).error();
}

}  // namespace caisson::launcher
