#include "agent/protocol.h"

#include <cstring>
#include <limits>
#include <utility>

#include "launcher/messages.h"
#include "launcher/wire.h"

namespace caisson::agent {

namespace {

using launcher::Reader;
using launcher::Writer;

constexpr size_t kHeaderBytes = 8;  // kind, three bytes of zero, the length
constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxTimeoutMs = int64_t{366} * 24 * 3600 * 1000;
constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxSentenceBytes = 4096;
constexpr size_t kMaxArgumentBytes = size_t{2} << 20;
constexpr size_t kMaxArguments = 65'536;
constexpr size_t kMaxMounts = 128;
constexpr size_t kMaxSpecBytes = size_t{8} << 20;
constexpr size_t kMaxOutcomeBytes = size_t{32} << 20;
constexpr size_t kMaxDegraded = 64;
constexpr size_t kMaxInterfaces = 64;

bool HasNoNul(std::string_view text) { return text.find('\0') == std::string_view::npos; }
bool IsAbsolute(std::string_view path) { return !path.empty() && path[0] == '/' && HasNoNul(path); }
bool IsBelow(std::string_view path) { return !path.empty() && path[0] != '/' && HasNoNul(path); }

template <typename Side, typename Message>
void DescribePlan(Side& side, Message& plan, std::string& spec) {
  side.Text("spec", spec, kMaxSpecBytes);
  side.Flag("observe", plan.observe);
  side.Flag("serve_names", plan.serve_names);
  side.Flag("limit_processes_by_rlimit", plan.limit_processes_by_rlimit);
  side.Flag("in_pod", plan.in_pod);
  side.Flag("watch_limits", plan.watch_limits);
  side.Flag("commands_become_user", plan.commands_become_user);
  side.Flag("one_scratch", plan.one_scratch);
  side.Flag("workspace_is_mounted", plan.workspace_is_mounted);
  side.List("mounts", plan.mounts, kMaxMounts, [&](auto& mount) {
    side.Text("target", mount.target, kMaxPathBytes, IsAbsolute);
    side.Choice("access", mount.access, sandbox::Access::kReadWrite);
  });
}

template <typename Side, typename Message>
void Describe(Side& side, Message& piece, const FilePiece*) {
  side.Text("path", piece.path, kMaxPathBytes, IsBelow);
  side.Choice("kind", piece.kind, sandbox::FileKind::kDirectory);
  side.Number("mode", piece.mode, 0, 0777);
  side.Flag("continues", piece.continues);
  side.Text("bytes", piece.bytes, kPieceBytes);
}

template <typename Side, typename Message>
void Describe(Side& side, Message& execute, const Execute*) {
  side.List("argv", execute.command.argv, kMaxArguments,
            [&](auto& argument) { side.Text("argument", argument, kMaxArgumentBytes, HasNoNul); });
  side.List("env", execute.command.env, kMaxArguments,
            [&](auto& variable) { side.Text("variable", variable, kMaxArgumentBytes, HasNoNul); });
  side.Text("cwd", execute.command.cwd, kMaxPathBytes, IsAbsolute);
  side.Flag("terminal", execute.terminal);
  side.Flag("has_input", execute.has_input);
  side.Number("rows", execute.rows, 0, 65'535);
  side.Number("columns", execute.columns, 0, 65'535);
  side.Number("timeout_ms", execute.timeout_ms, 0, kMaxTimeoutMs);
  side.Text("timeout_name", execute.timeout_name, kMaxNameBytes);
}

template <typename Side, typename Message>
void Describe(Side& side, Message& output, const Output*) {
  side.Choice("stream", output.stream, OutputStream::kStderr);
  side.Text("bytes", output.bytes, kPieceBytes);
}

template <typename Side, typename Message>
void DescribeReady(Side& side, Message& ready, std::optional<std::string>& isolation) {
  side.Number("landlock_abi", ready.landlock_abi, 0, 1000);
  side.Flag("filter", ready.filter);
  side.Flag("no_new_privileges", ready.no_new_privileges);
  side.Number("capabilities", ready.capabilities, std::numeric_limits<int64_t>::min(), kMaxNumber);
  side.Flag("read_only_root", ready.read_only_root);
  side.Flag("only_loopback", ready.only_loopback);
  side.Flag("serves_names", ready.serves_names);
  side.List("degraded", ready.degraded, kMaxDegraded,
            [&](auto& line) { side.Text("line", line, kMaxSentenceBytes, HasNoNul); });
  side.Maybe("isolation", isolation, [&](auto& bytes) { side.Text("bytes", bytes, kMaxSpecBytes); });
  side.List("interfaces", ready.interfaces, kMaxInterfaces,
            [&](auto& name) { side.Text("name", name, kMaxNameBytes, HasNoNul); });
}

template <typename Side, typename Message>
void Describe(Side& side, Message& size, const Resize*) {
  side.Number("rows", size.rows, 0, 65'535);
  side.Number("columns", size.columns, 0, 65'535);
}

template <typename Side, typename Counters>
void DescribeCounters(Side& side, Counters& counters) {
  side.Number("oom_kills", counters.oom_kills, 0, kMaxNumber);
  side.Number("refused_forks", counters.refused_forks, 0, kMaxNumber);
  for (const auto& [name, value] :
       {std::pair{"cpu_ms", &counters.cpu_ms}, std::pair{"throttled_ms", &counters.throttled_ms},
        std::pair{"peak_memory_bytes", &counters.peak_memory_bytes},
        std::pair{"peak_processes", &counters.peak_processes}}) {
    side.Maybe(name, *value, [&, field = name](auto& number) { side.Number(field, number, 0, kMaxNumber); });
  }
}

template <typename Side, typename Message>
void DescribeOutcome(Side& side, Message& message, std::string& outcome) {
  side.Text("outcome", outcome, kMaxOutcomeBytes);
  side.Maybe("counters", message.counters, [&](auto& counters) { DescribeCounters(side, counters); });
}

Result<std::string> BytesOf(Result<launcher::Encoded> encoded) {
  if (!encoded) return std::move(encoded).error();
  return std::move(encoded->bytes);
}

template <typename Message>
Result<std::string> Write(const char* name, const Message& message) {
  Writer writer(name);
  Describe(writer, message, static_cast<const Message*>(nullptr));
  return BytesOf(writer.Finish());
}

template <typename Message>
Result<Message> Read(const char* name, std::string_view body) {
  Reader reader(name, body, {});
  Message message;
  Describe(reader, message, static_cast<const Message*>(nullptr));
  CAISSON_TRY_VOID(reader.Finish());
  return message;
}

}  // namespace

sandbox::WriteRules WriteRulesOf(const Plan& plan) {
  const sandbox::Spec& spec = plan.spec;
  sandbox::WriteRules rules;
  rules.writable = {"/scratch"};
  if (spec.writable_tmp) rules.writable.emplace_back("/tmp");
  if (spec.writable_shm) rules.writable.emplace_back("/dev/shm");
  if (!plan.workspace_is_mounted && spec.workspace_files_writable) rules.writable.emplace_back("/workspace");
  for (const ShownTree& mount : plan.mounts)
    (mount.access != sandbox::Access::kReadOnly ? rules.writable : rules.read_only).push_back(mount.target);
  rules.ignored_components = spec.ignored_write_components;
  return rules;
}

std::string Pack(Kind kind, std::string_view body) {
  std::string frame(kHeaderBytes, '\0');
  frame[0] = static_cast<char>(kind);
  for (size_t i = 0; i < 4; ++i) frame[4 + i] = static_cast<char>(body.size() >> (8 * i));
  return frame.append(body);
}

Result<std::optional<Frame>> FrameReader::Next() {
  const std::string_view rest = std::string_view(bytes_).substr(read_);
  if (rest.size() < kHeaderBytes) return std::optional<Frame>();
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= static_cast<size_t>(static_cast<unsigned char>(rest[4 + i])) << (8 * i);
  if (rest[1] != 0 || rest[2] != 0 || rest[3] != 0 || length > kMaxBodyBytes)
    return Error::Invalid("frame: not one of this protocol");
  if (rest.size() - kHeaderBytes < length) return std::optional<Frame>();
  Frame frame;
  frame.kind = static_cast<Kind>(rest[0]);
  frame.body = rest.substr(kHeaderBytes, length);
  read_ += kHeaderBytes + length;
  if (read_ == bytes_.size() || read_ > (size_t{1} << 20)) {
    bytes_.erase(0, read_);
    read_ = 0;
  }
  return std::optional<Frame>(std::move(frame));
}

Result<std::string> Encode(const Plan& plan) {
  CAISSON_TRY(std::string spec, BytesOf(launcher::EncodeStart(plan.spec)));
  Writer writer("plan");
  DescribePlan(writer, plan, spec);
  return BytesOf(writer.Finish());
}

Result<Plan> DecodePlan(std::string_view body) {
  Reader reader("plan", body, {});
  Plan plan;
  std::string spec;
  DescribePlan(reader, plan, spec);
  CAISSON_TRY_VOID(reader.Finish());
  CAISSON_TRY(plan.spec, launcher::DecodeStart(spec, {}));
  return plan;
}

Result<std::string> Encode(const Outcome& message) {
  CAISSON_TRY(std::string outcome, BytesOf(launcher::Encode(message.outcome)));
  Writer writer("outcome");
  DescribeOutcome(writer, message, outcome);
  return BytesOf(writer.Finish());
}

Result<Outcome> DecodeOutcome(std::string_view body) {
  Reader reader("outcome", body, {});
  Outcome message;
  std::string outcome;
  DescribeOutcome(reader, message, outcome);
  CAISSON_TRY_VOID(reader.Finish());
  CAISSON_TRY(message.outcome, launcher::DecodeOutcome(outcome));
  return message;
}

Result<std::string> Encode(const FilePiece& piece) { return Write("file", piece); }
Result<std::string> Encode(const Execute& execute) { return Write("execute", execute); }
Result<std::string> Encode(const Output& output) { return Write("output", output); }
Result<std::string> Encode(const Ready& ready) {
  std::optional<std::string> isolation;
  if (ready.isolation) {
    CAISSON_TRY(isolation, BytesOf(launcher::Encode(*ready.isolation)));
  }
  Writer writer("ready");
  DescribeReady(writer, ready, isolation);
  return BytesOf(writer.Finish());
}
Result<std::string> Encode(const Resize& size) { return Write("resize", size); }

Result<std::string> EncodeNumber(int64_t number) {
  Writer writer("number");
  writer.Number("number", number, 0, kMaxNumber);
  return BytesOf(writer.Finish());
}

Result<std::string> Encode(const std::vector<std::string>& globs) {
  return BytesOf(launcher::Encode(launcher::CollectMessage{globs}));
}
Result<std::string> Encode(const Violation& violation) { return BytesOf(launcher::Encode(violation)); }
Result<std::string> Encode(const sandbox::Collected& collected) { return BytesOf(launcher::Encode(collected)); }
std::string Encode(const Error& error) { return launcher::Encode(error).bytes; }

Result<FilePiece> DecodeFilePiece(std::string_view body) { return Read<FilePiece>("file", body); }
Result<Execute> DecodeExecute(std::string_view body) {
  CAISSON_TRY(Execute execute, Read<Execute>("execute", body));
  if (execute.command.argv.empty() || execute.command.argv[0].empty())
    return Error::Invalid("execute.argv: the program is not named");
  return execute;
}
Result<Output> DecodeOutput(std::string_view body) { return Read<Output>("output", body); }
Result<Ready> DecodeReady(std::string_view body) {
  Reader reader("ready", body, {});
  Ready ready;
  std::optional<std::string> isolation;
  DescribeReady(reader, ready, isolation);
  CAISSON_TRY_VOID(reader.Finish());
  if (isolation) {
    CAISSON_TRY(ready.isolation, launcher::DecodeIsolation(*isolation));
  }
  return ready;
}
Result<Resize> DecodeResize(std::string_view body) { return Read<Resize>("resize", body); }

Result<int64_t> DecodeNumber(std::string_view body) {
  Reader reader("number", body, {});
  int64_t number = 0;
  reader.Number("number", number, 0, kMaxNumber);
  CAISSON_TRY_VOID(reader.Finish());
  return number;
}

Result<std::vector<std::string>> DecodeGlobs(std::string_view body) {
  CAISSON_TRY(launcher::CollectMessage message, launcher::DecodeCollect(body));
  return std::move(message.globs);
}
Result<Violation> DecodeViolation(std::string_view body) { return launcher::DecodeViolation(body); }
Result<sandbox::Collected> DecodeCollected(std::string_view body) { return launcher::DecodeCollected(body); }
Error DecodeError(std::string_view body) { return launcher::DecodeError(body); }

}  // namespace caisson::agent
