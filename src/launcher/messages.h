// What a client and the launcher's supervisors say to each other, one frame each:
//
//   client to launcher      kOpen       carries one end of a new seqpacket pair: begin a run there, or send kStatus
//   client to supervisor    kStart      the Spec, its mount sources and, where they pass through, three streams
//                           kExecute    run one command; until its outcome, signalfd_siginfo records follow it
//                           kCollect    end the sandbox and read files it left
//   supervisor to client    kReady      what was applied                        (answers kStart)
//                           kOutput, kViolation   as they happen, if wanted     (during kExecute)
//                           kOutcome                                            (answers kExecute)
//                           kCollected                                          (answers kCollect)
//                           kError      instead of any answer
//
// Closing the connection ends the run and everything in it.
//
// SECURITY: the client parses what strangers send it and may be taken over, so nothing it says is believed. This is the
// whole of what it can ask for: a Spec. Such a Spec can be as weak as the weakest profile (calls allowed in front of
// the filter, no Landlock, ipc, uts, cgroup and time namespaces shared, any limit within its bounds), and the report
// says so. It cannot spell a sandbox without its own user, process, mount and network namespaces, without a filter,
// with a capability or with the host's identity; nor a device beyond the five harmless ones, a path with "..", or a
// file written through a link. Files of the host come in as descriptors the client opened, and the inside user gets
// exactly the client's own rights to them (Spec::mount_owner), however the descriptor was come by: a root launcher
// lends it nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"
#include "launcher/wire.h"
#include "sandbox/collector.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

namespace caisson::launcher {

// Raised whenever a description changes: both ends must be of one build's making.
inline constexpr uint32_t kProtocolVersion = 2;

// Above every signal's number, with which the records begin that the same connection carries.
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
  kError,
};

struct StartMessage {
  sandbox::Spec spec;
  std::vector<UniqueFd> streams;  // stdin, stdout and stderr, unless they are captured
};

struct ExecuteMessage {
  uint32_t command = 0;
  int64_t timeout_ms = 0;
  std::string timeout_name;
  bool last = true;
  int64_t signal_grace_ms = 0;
  bool wants_output = false;  // as it comes, besides what the outcome holds
  bool wants_violations = false;
};

struct OutputMessage {
  OutputStream stream = OutputStream::kStdout;
  std::string bytes;
};

struct CollectMessage {
  std::vector<std::string> globs;
};

Result<Encoded> Encode(const StartMessage& message);
// The Spec alone, as a supervisor passes it on to a PID 1 that it had made ahead.
Result<Encoded> Encode(const sandbox::Spec& spec);
// How the launcher's pools are; numbers since it started.
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

Result<StartMessage> DecodeStart(std::string_view bytes, std::vector<UniqueFd> fds);
Result<sandbox::Spec> DecodeSpec(std::string_view bytes, std::vector<UniqueFd> fds);
Result<ExecuteMessage> DecodeExecute(std::string_view bytes);
Result<CollectMessage> DecodeCollect(std::string_view bytes);
Result<sandbox::Isolation> DecodeIsolation(std::string_view bytes);
Result<OutputMessage> DecodeOutput(std::string_view bytes);
Result<Violation> DecodeViolation(std::string_view bytes);
Result<CommandOutcome> DecodeOutcome(std::string_view bytes);
Result<sandbox::Collected> DecodeCollected(std::string_view bytes);
Result<StatusMessage> DecodeStatus(std::string_view bytes);
// The error that was sent, or what is wrong with it.
Error DecodeError(std::string_view bytes);

}  // namespace caisson::launcher
