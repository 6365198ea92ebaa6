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
constexpr size_t kMaxPathBytes = 65536;  // of collected files: as deep as the collector goes
constexpr size_t kMaxStreamBytes = size_t{1} << 30;
constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxViolations = 1024;
constexpr size_t kMaxEvidence = 64;
constexpr size_t kMaxGlobs = 1024;

template <typename Side, typename Message>
void DescribeExecute(Side& side, Message& message) {
  side.Number("command", message.command, 0, std::numeric_limits<int32_t>::max());
  side.Number("timeout_ms", message.timeout_ms, 0, kMaxTimeoutMs);
  side.Text("timeout_name", message.timeout_name, kMaxNameBytes);
  side.Flag("last", message.last);
  side.Number("signal_grace_ms", message.signal_grace_ms, 0, kMaxTimeoutMs);
  side.Flag("wants_output", message.wants_output);
  side.Flag("wants_violations", message.wants_violations);
}

template <typename Side, typename Message>
void DescribeCollect(Side& side, Message& message) {
  side.List("globs", message.globs, kMaxGlobs, [&](auto& glob) { side.Text("glob", glob, kMaxPathBytes); });
}

template <typename Side, typename Message>
void DescribeIsolation(Side& side, Message& isolation) {
  side.List("namespaces", isolation.namespaces, 16, [&](auto& name) { side.Text("name", name, kMaxNameBytes); });
  side.Text("seccomp_profile", isolation.seccomp_profile, kMaxNameBytes);
  side.Text("seccomp_sha256", isolation.seccomp_sha256, kMaxNameBytes);
  side.Number("landlock_abi", isolation.landlock_abi, 0, 1000);
  side.Choice("cgroup_driver", isolation.cgroup_driver, sandbox::CgroupDriver::kNone);
  side.Number("host_uid", isolation.host_uid, 0, std::numeric_limits<uint32_t>::max());
  side.Flag("own_id_range", isolation.own_id_range);
  side.Choice("start", isolation.start, sandbox::Start::kInterpreter);
  side.List("degraded", isolation.degraded, 64, [&](auto& wall) { side.Text("wall", wall, kMaxSentenceBytes); });
}

template <typename Side, typename Message>
void DescribeOutput(Side& side, Message& message) {
  side.Choice("stream", message.stream, OutputStream::kStderr);
  side.Text("bytes", message.bytes, kMaxStreamBytes);
}

template <typename Side, typename Message>
void DescribeViolation(Side& side, Message& violation) {
  side.Choice("class", violation.violation_class, ViolationClass::kSyscall);
  side.Text("reason", violation.reason, kMaxNameBytes);
  side.Choice("confidence", violation.confidence, Confidence::kObserved);
  side.Number("time_ms", violation.time_ms, 0, kMaxNumber);
  side.Number("pid", violation.pid, 0, std::numeric_limits<int32_t>::max());
  side.List("evidence", violation.evidence, kMaxEvidence, [&](auto& item) {
    side.Text("key", item.first, kMaxNameBytes);
    side.Value("value", item.second, kMaxSentenceBytes);
  });
  side.Number("limit", violation.limit, -1, kMaxNumber);
  side.Text("suggestion", violation.suggestion, kMaxSentenceBytes);
}

template <typename Side, typename Message>
void DescribeStream(Side& side, Message& stream) {
  side.Text("head", stream.head, kMaxStreamBytes);
  side.Text("tail", stream.tail, kMaxStreamBytes);
  side.Number("total_bytes", stream.total_bytes, 0, kMaxNumber);
  side.Number("dropped_bytes", stream.dropped_bytes, 0, kMaxNumber);
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
  side.Number("cpu_ms", outcome.usage.cpu_ms, -kMaxNumber, kMaxNumber);
  side.Number("peak_memory_bytes", outcome.usage.peak_memory_bytes, 0, kMaxNumber);
  side.Number("processes_peak", outcome.usage.processes_peak, 0, kMaxNumber);
  side.Number("output_bytes", outcome.usage.output_bytes, 0, kMaxNumber);
  side.Number("scratch_bytes", outcome.usage.scratch_bytes, 0, kMaxNumber);
  side.Number("throttled_ms", outcome.usage.throttled_ms, -kMaxNumber, kMaxNumber);
  side.List("violations", outcome.violations, kMaxViolations,
            [&](auto& violation) { DescribeViolation(side, violation); });
  side.Number("violations_dropped", outcome.violations_dropped, 0, kMaxNumber);
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

Result<ExecuteMessage> DecodeExecute(std::string_view bytes) {
  return Decode<ExecuteMessage>("execute", bytes, DescribeExecute<Reader, ExecuteMessage>);
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
