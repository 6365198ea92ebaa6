// The protocol between a runtime outside and caisson-agent, its witness inside foreign walls: frames over one byte
// stream in each direction (pipes, the attached streams of an engine). A frame is its kind, the length of its body, and
// the body, which launcher/wire.h describes.
//
//   to the agent      kGreet      asks for kHello, where the agent was told to wait: attaching to a pod loses what the
//                                 agent has said before
//                     kPlan       what to enforce and observe; first, once
//                     kFile       a piece of a file of the workspace; any number, after kPlan
//                     kBegin      the workspace is complete                            (answered by kReady)
//                     kExecute    run one command                                      (answered by kOutcome)
//                     kInput, kInputEnd, kSignal, kResize, kStop   for the running command; ignored without one
//                     kCollect    read files that the commands left                    (answered by kCollected)
//   from the agent    kHello      the version of the protocol; first, once
//                     kReady, kOutput, kViolation, kOutcome, kCollected
//                     kError      instead of any answer
//
// The end of the stream to the agent ends the agent, and with it everything inside.
//
// SECURITY: the agent holds the only end of its stream and no process of the workload can reach it. The side outside
// still trusts nothing that arrives: bodies are bounded, decoded strictly, and their facts count as told from inside
// (EvidenceSource::kInside), because an escape into the agent could forge them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"
#include "sandbox/collector.h"
#include "sandbox/limit_group.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"
#include "sandbox/write_rules.h"

namespace caisson::agent {

// Must be raised whenever a message changes: both ends must come from the same build.
inline constexpr uint32_t kProtocolVersion = 2;

enum class Kind : uint8_t {
  kPlan = 1,
  kFile,
  kBegin,
  kExecute,
  kInput,
  kInputEnd,
  kSignal,
  kResize,
  kStop,
  kCollect,
  kGreet,
  kHello = 0x40,
  kReady,
  kOutput,
  kViolation,
  kOutcome,
  kCollected,
  kError,
};

// The largest body: all files that one collection may read, and their names.
inline constexpr size_t kMaxBodyBytes = size_t{80} << 20;
// Pieces of files, input and output are sent in frames of at most this size.
inline constexpr size_t kPieceBytes = size_t{64} << 10;

struct Frame {
  Kind kind = Kind::kError;
  std::string body;
};

// The bytes of a frame.
std::string Pack(Kind kind, std::string_view body);

// Turns a stream of bytes back into frames. The bytes may be hostile.
class FrameReader {
 public:
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  // Absent when the next frame is not complete yet. An error is final: the stream cannot be read any further.
  Result<std::optional<Frame>> Next();
  // Bytes that wait for the rest of their frame.
  size_t waiting() const { return bytes_.size() - read_; }

 private:
  std::string bytes_;
  size_t read_ = 0;  // of bytes_, by earlier calls
};

// A tree that the walls around the agent show.
struct ShownTree {
  std::string target;
  sandbox::Access access = sandbox::Access::kReadOnly;
};

struct Plan {
  sandbox::Spec spec;   // without mounts and files of the workspace, which are none of the agent's work
  bool observe = true;  // install the filter of the spec and observe; false where the walls outside observe
  bool serve_names = true;
  // The walls have no limit of processes of their own that is as tight as the plan's: RLIMIT_NPROC is the limit.
  bool limit_processes_by_rlimit = false;
  // The walls are a pod's: the agent lists the interfaces of the network, reads the counters of its own cgroup, and
  // watches the number of tasks and files and the CPU time.
  bool in_pod = false;
  // The walls have no cgroup: the agent watches memory, processes and CPU time.
  bool watch_limits = false;
  // The agent is root of a kernel of its own, with the capabilities that this takes, and gives both up in the process
  // of each command.
  bool commands_become_user = false;
  bool one_scratch = false;           // all writable places are on one file system, also where that cannot be seen
  bool workspace_is_mounted = false;  // the walls show it; else the agent writes it
  std::vector<ShownTree> mounts;
};

// What a workload under this plan may write.
sandbox::WriteRules WriteRulesOf(const Plan& plan);

struct FilePiece {
  std::string path;  // below /workspace
  sandbox::FileKind kind = sandbox::FileKind::kRegular;
  uint32_t mode = 0644;
  bool continues = false;  // the bytes follow those of the piece before
  std::string bytes;
};

struct Execute {
  sandbox::Command command;
  bool terminal = false;
  bool has_input = false;
  uint16_t rows = 24, columns = 80;
  int64_t timeout_ms = 0;
  std::string timeout_name;
};

struct Output {
  OutputStream stream = OutputStream::kStdout;
  std::string bytes;
};

// What the agent found and did.
struct Ready {
  int landlock_abi = 0;
  bool filter = false;
  bool no_new_privileges = false;
  uint64_t capabilities = 0;  // in any set
  bool read_only_root = false;
  bool only_loopback = false;  // there is no other network interface
  bool serves_names = false;
  std::vector<std::string> degraded;
  // Where the agent has a native sandbox built (agent/nested.h): what that sandbox applied.
  std::optional<sandbox::Isolation> isolation;
  std::vector<std::string> interfaces;  // of the network, besides the loopback
};

struct Outcome {
  CommandOutcome outcome;                          // without streams
  std::optional<sandbox::GroupCounters> counters;  // since the command began, of the agent's own cgroup, if seen
};

struct Resize {
  uint16_t rows = 24, columns = 80;
};

Result<std::string> Encode(const Plan& plan);
Result<std::string> Encode(const FilePiece& piece);
Result<std::string> Encode(const Execute& execute);
Result<std::string> Encode(const Output& output);
Result<std::string> Encode(const Ready& ready);
Result<std::string> Encode(const Outcome& outcome);
Result<std::string> Encode(const Resize& size);
Result<std::string> EncodeNumber(int64_t number);  // kHello: the version; kSignal: the signal; kStop: the Ending
Result<std::string> Encode(const std::vector<std::string>& globs);
Result<std::string> Encode(const Violation& violation);
Result<std::string> Encode(const sandbox::Collected& collected);
std::string Encode(const Error& error);

Result<Plan> DecodePlan(std::string_view body);
Result<FilePiece> DecodeFilePiece(std::string_view body);
Result<Execute> DecodeExecute(std::string_view body);
Result<Output> DecodeOutput(std::string_view body);
Result<Ready> DecodeReady(std::string_view body);
Result<Outcome> DecodeOutcome(std::string_view body);
Result<Resize> DecodeResize(std::string_view body);
Result<int64_t> DecodeNumber(std::string_view body);
Result<std::vector<std::string>> DecodeGlobs(std::string_view body);
Result<Violation> DecodeViolation(std::string_view body);
Result<sandbox::Collected> DecodeCollected(std::string_view body);
// The error that was sent, or an error that says why the message is invalid.
Error DecodeError(std::string_view body);

}  // namespace caisson::agent
