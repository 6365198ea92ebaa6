// The workload's fate, as every runtime reports it. Facts only; verify/ derives the verdict from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/violation.h"

namespace caisson {

// What ended a command.
enum class Ending : uint8_t {
  kExited,         // by itself; exit_code is its own
  kSignaled,       // by a signal that the supervisor did not send
  kTimeout,        // the supervisor's clock, or the CPU time used, passed its limit; everything was killed
  kMemoryLimit,    // the group ran out of memory and was killed
  kProcessLimit,   // forks kept being refused and the group was killed
  kOutputLimit,    // output passed the cap and the group was killed
  kSyscall,        // a system call that always ends the command; the group was killed
  kCancelled,      // the caller cancelled the run
  kNotExecutable,  // the command could not be started: exec_errno says why
  kLost,           // the machine, pod or launcher it ran in is gone; what became of it is not known
};

// Of one command. A value that this machine cannot measure is absent, not 0.
struct Usage {
  std::optional<int64_t> cpu_ms;
  // The highest value while this command ran. Also absent if the kernel keeps only one peak for all commands of the
  // sandbox and this command stayed below an earlier one.
  std::optional<int64_t> peak_memory_bytes;
  std::optional<int64_t> processes_peak;
  int64_t output_bytes = 0;  // counted by whatever reads it
  std::optional<int64_t> scratch_bytes;
  std::optional<int64_t> throttled_ms;
  // Of the supervisor, on behalf of this command. It counts towards the same CPU limit as cpu_ms, but is not part of
  // cpu_ms.
  std::optional<int64_t> supervisor_cpu_ms;
};

// One stream's bytes: everything when it fitted, else its head and its tail.
struct CapturedStream {
  std::string head;
  std::string tail;          // follows head directly when nothing was dropped
  uint64_t total_bytes = 0;  // what the workload wrote, as far as it was read
  uint64_t dropped_bytes = 0;
};

enum class OutputStream : uint8_t { kStdout, kStderr };

// What a command did with one destination. Allowed: connections that policy let pass, whether they were reached or not.
struct NetworkUse {
  std::string name;      // of the destination, or its address; bytes that names do not have are escaped as \NNN
  int64_t port = 0;      // 0 for a look-up
  std::string protocol;  // "tls", "http", "tcp"; "dns" for a look-up
  std::string address;   // that was dialled, or that was the reason not to; may be empty
  std::string rule;      // that decided; empty when none did
  std::string reason;    // "allowed", "not_listed", "sni_mismatch", …
  bool allowed = false;
  int64_t bytes_in = 0;     // to the sandbox
  int64_t bytes_out = 0;    // from the sandbox
  int64_t connections = 0;  // or look-ups; of denied ones, attempts
};

struct CommandOutcome {
  Ending ending = Ending::kExited;
  int exit_code = 0;   // 128+N for signal N; meaningless for kNotExecutable
  int signal = 0;      // 0 unless kSignaled
  int exec_errno = 0;  // kNotExecutable only
  int64_t duration_ms = 0;
  bool left_processes = false;  // something of it was still running when its main process ended
  CapturedStream stdout_stream;
  CapturedStream stderr_stream;
  Usage usage;
  // At least the first of every class and reason, and what ended the command. Violation::count stands for the rest.
  std::vector<Violation> violations;
  std::vector<Notice> notices;      // refused probes, one for each entry of the profile that was met
  std::vector<NetworkUse> network;  // in the order of first use; only where a sandbox has a network
};

}  // namespace caisson
