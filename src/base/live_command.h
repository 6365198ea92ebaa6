// Commands and files of a run that stays (runtime/live_run.h), and what happens to them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/network_asker.h"
#include "base/outcome.h"
#include "base/unique_fd.h"
#include "base/violation.h"

namespace caisson {

struct LiveCommandOptions {
  bool terminal = false;  // a pseudo-terminal of the sandbox's own, which becomes the controlling terminal
  bool input = false;     // without a terminal: a pipe as standard input; false: /dev/null
  uint16_t rows = 24, columns = 80;
};

// A command that was started, with the caller's ends of its streams: non-blocking, read and written by the caller, who
// counts the bytes. With a terminal, `output` is its master side, for both directions, and the others are invalid.
// Processes that the command left behind may keep a stream open after it has ended.
struct LiveCommand {
  uint32_t id = 0;  // counts from 1 in each run
  UniqueFd input, output, error;
};

struct LiveEvent {
  enum class Kind : uint8_t {
    kCommandEnded,  // the command's main process is gone: command, outcome
    kViolation,     // violation
    kNetwork,       // network: a connection that was allowed and has ended, or an attempt that was denied
    kQuestion,      // question: a connection waits until a person has decided about its destination
    kRunEnded,      // everything inside is gone and nothing can be started any more: reason
  };
  Kind kind = Kind::kRunEnded;
  uint32_t command = 0;
  CommandOutcome outcome;  // without streams; usage holds cpu_ms only
  std::optional<Violation> violation;
  NetworkUse network;
  NetworkQuestion question;
  std::string reason;
};

// Of the whole run until now.
struct LiveUsage {
  std::optional<int64_t> cpu_ms, peak_memory_bytes, memory_bytes, processes;
  std::optional<int64_t> scratch_bytes;
};

struct InsideFileInfo {
  std::string name;  // without directories
  mode_t mode = 0;   // with the file type
  int64_t size = 0;
  int64_t modified_ns = 0;  // since the epoch
  std::string link_target;  // of a symbolic link
  mode_t target_mode = 0;   // of what a symbolic link leads to inside; 0: nothing
};

enum class OpenFor : uint8_t { kReading, kWriting };  // kWriting creates the file, or truncates it

}  // namespace caisson
