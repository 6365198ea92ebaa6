// The messages between a client, the launcher and its supervisors, one frame each:
//
//   client to launcher      kOpen       carries one end of a new seqpacket pair: begin a run there, or send kStatus
//   client to supervisor    kStart      the Spec and its mount sources
//                           kExecute    run one command, with its standard streams
//                           kSignal     send a signal to that command, or end it; ignored when no command runs
//                           kCollect    read files that the commands left
//   supervisor to client    kReady      the isolation that was applied              (answers kStart)
//                           kOutput, kViolation   as they happen, if requested      (during kExecute)
//                           kOutcome                                                (answers kExecute)
//                           kCollected                                              (answers kCollect)
//                           kError      instead of any answer
//
// Closing the connection ends the run and everything in it.
//
// SECURITY: the client parses input from untrusted callers and may be compromised, so the launcher trusts nothing that
// it sends. A Spec is all that the client can ask for. Such a Spec can be as weak as the weakest profile (calls allowed
// in front of the filter, no Landlock, ipc, uts, cgroup and time namespaces shared, any limit within its bounds), and
// the report says so. It cannot express a sandbox without its own user, process, mount and network namespaces, without
// a filter, with a capability or with the host's identity; nor a device beyond the five harmless ones, a path with
// "..", or a file written through a link. Files of the host come in as descriptors that the client opened, and the
// inside user gets exactly the client's own rights to them (Spec::mount_owner), however the client obtained the
// descriptor: a root launcher lends the client no rights. A root image comes in as a descriptor too; its files are
// shown read-only with the rights that every user of the machine has, as the host's own trees are. A network reaches
// only what an unprivileged process of this machine reaches, as the rules of the Spec say: the client's own process
// could do that without the launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_io.h"
#include "base/outcome.h"
#include "base/result.h"
#include "launcher/wire.h"
#include "sandbox/collector.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

namespace caisson::launcher {

// Must be raised whenever a message description changes: both ends must come from the same build.
inline constexpr uint32_t kProtocolVersion = 5;

enum class Kind : uint8_t {
  kOpen = 0x80,
  kStart,
  kExecute,
  kCollect,
  kReady,
  kOutput,
  kViolation,
  kOutcome,
  kCollected,
  kStatus,
  kSignal,
  kError,
};

struct ExecuteMessage {
  sandbox::Command command;
  CommandIo::Kind io = CommandIo::Kind::kCapture;
  std::optional<std::string> input;                        // of a captured command
  std::optional<UniqueFd> stdin_fd, stdout_fd, stderr_fd;  // of other commands; absent: /dev/null
  int64_t timeout_ms = 0;
  std::string timeout_name;
  bool last = false;
  int64_t signal_grace_ms = 0;
  bool wants_output = false;  // send output as it arrives, in addition to the outcome
  bool wants_violations = false;
};

struct OutputMessage {
  OutputStream stream = OutputStream::kStdout;
  std::string bytes;
};

struct CollectMessage {
  std::vector<std::string> globs;
};

// kStart: both sides also check the rules of a Spec that involve several fields.
Result<Encoded> EncodeStart(const sandbox::Spec& spec);
// Encodes a Spec that was checked before, for a supervisor to send to a PID 1 that it created ahead of the request.
Result<Encoded> Encode(const sandbox::Spec& spec);
// The state of the launcher's pools; totals count from its start.
struct StatusMessage {
  struct PoolStatus {
    std::string name;
    uint64_t ready = 0, preparing = 0;  // now
    uint64_t taken = 0, missed = 0, died = 0;
  };
  std::vector<PoolStatus> pools;
  uint64_t interpreters_died = 0;
};

Result<Encoded> Encode(const ExecuteMessage& message);
Result<Encoded> Encode(const CollectMessage& message);
Result<Encoded> Encode(const sandbox::Isolation& isolation);
Result<Encoded> Encode(const OutputMessage& message);
Result<Encoded> Encode(const Violation& violation);
Result<Encoded> Encode(const CommandOutcome& outcome);
Result<Encoded> Encode(const sandbox::Collected& collected);
Result<Encoded> Encode(const StatusMessage& status);
Encoded Encode(const Error& error);

Result<sandbox::Spec> DecodeStart(std::string_view bytes, std::vector<UniqueFd> fds);
Result<sandbox::Spec> DecodeSpec(std::string_view bytes, std::vector<UniqueFd> fds);
Result<ExecuteMessage> DecodeExecute(std::string_view bytes, std::vector<UniqueFd> fds);
Result<CollectMessage> DecodeCollect(std::string_view bytes);
Result<sandbox::Isolation> DecodeIsolation(std::string_view bytes);
Result<OutputMessage> DecodeOutput(std::string_view bytes);
Result<Violation> DecodeViolation(std::string_view bytes);
Result<CommandOutcome> DecodeOutcome(std::string_view bytes);
Result<sandbox::Collected> DecodeCollected(std::string_view bytes);
Result<StatusMessage> DecodeStatus(std::string_view bytes);
// Returns the error that was sent, or an error that says why the message is invalid.
Error DecodeError(std::string_view bytes);

}  // namespace caisson::launcher
