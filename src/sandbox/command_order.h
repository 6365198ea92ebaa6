// A command as the supervisor sends it to PID 1, over the control socket, once all walls stand.
//
// PID 1 is a fork that must not allocate, so it receives into memory that is mapped for it before clone. Untouched,
// that memory costs nothing. A command that fits a packet takes one; its standard streams travel beside it.
//
// SECURITY: the memory is private to PID 1. Only the supervisor writes to the control socket and no process of the
// workload holds it, so the workload cannot see or change a command before it is executed, and PID 1 shares no page
// with the supervisor. A program that is executed replaces this memory. A workload that is forked from a running
// interpreter inherits a copy, which holds only its own command: PID 1 wipes each command before it takes the next, and
// the supervisor sends none in advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/control.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

// Linux executes no program whose arguments, variables and the pointers to them exceed this size, whatever the stack
// limit is (three quarters of _STK_LIM).
inline constexpr size_t kMaxCommandBytes = size_t{6} << 20;

// The memory that PID 1 receives a command into.
class CommandMemory {
 public:
  static Result<CommandMemory> Map();
  ~CommandMemory();
  CommandMemory(CommandMemory&& other) noexcept;
  CommandMemory& operator=(CommandMemory&&) = delete;

  void* address() const { return address_; }

 private:
  explicit CommandMemory(void* address) : address_(address) {}
  void* address_;
};

// The workload's ends of its streams. With a terminal, `input` is its slave side and the other two are unused. Without
// a terminal, an invalid `input` stands for /dev/null.
struct WorkloadStreams {
  bool terminal = false;
  UniqueFd input, output, error;
};

// Supervisor: whether PID 1 has room for the command. A command that does not fit is too large for the kernel as well.
bool FitsOrder(const Command& command);

// How PID 1 runs a command.
struct CommandMode {
  bool last = false;  // PID 1 ends after it
  // Not 0: the number of a command of a live run, which runs beside others; its processes may outlive it. Once PID 1
  // has had one such command, every command is one.
  uint32_t live = 0;
};

// Supervisor: orders PID 1 to run the command. `on_begun` is called when the first packet is sent: the rest may have to
// wait until PID 1 reads.
Status SendCommand(int control_fd, const Command& command, const WorkloadStreams& streams, const CommandMode& mode,
                   const std::function<Status()>& on_begun = nullptr);

// Runs: PID 1. The received command; all pointers point into PID 1's command memory.
struct ReceivedCommand {
  bool last = false;
  uint32_t live = 0;
  bool terminal = false;
  int input = -1, output = -1, error = -1;
  const char* cwd = nullptr;
  const char* const* argv = nullptr;  // both null-terminated
  const char* const* env = nullptr;
  char* text = nullptr;
  size_t text_bytes = 0;
};

enum class Taken : uint8_t { kCommand, kLiveOrder, kNothing, kInvalid };

// Runs: PID 1. Waits for the next command; false when the supervisor is gone or sent an invalid command.
bool TakeCommand(int control_fd, void* memory, ReceivedCommand& command);
// Runs: PID 1 of a live run. Takes the next packet without waiting; kInvalid as above.
Taken TakeNext(int control_fd, void* memory, ReceivedCommand& command, LiveOrder& order);

// Runs: PID 1, once the command's process has its own copies: closes the streams.
void CloseStreams(ReceivedCommand& command);

// Runs: PID 1, before the next command.
void WipeCommand(const ReceivedCommand& command);

}  // namespace caisson::sandbox
