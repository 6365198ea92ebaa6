// The standard streams of one command, between the workload and the caller: captured, or copied as they arrive. Every
// byte is counted. A slow reader slows the workload, never the supervisor; the supervisor does not wait for an orphan
// that keeps a pipe open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/command_io.h"
#include "base/outcome.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "linux/event_loop.h"
#include "sandbox/command_order.h"
#include "sandbox/output_buffer.h"

namespace caisson::sandbox {

// The descriptors for one command: the supervisor's ends, and the workload's ends, which go to PID 1. The supervisor
// keeps copies of the latter until the command has ended: a program that closes its input early then causes no broken
// pipe, and a program that closes its output is not mistaken for one that ended.
struct StreamEnds {
  UniqueFd terminal;              // its master side, or
  UniqueFd input, output, error;  // the other ends of pipes; no input where the workload gets /dev/null
  WorkloadStreams workload;
};

// `root` is the sandbox's root, in which a terminal is created. New files belong to `owner`, the inside user as the
// host knows it, where that is not the caller.
Result<StreamEnds> OpenStreams(const CommandIo& io, int root, std::optional<uid_t> owner);

class Streams {
 public:
  // The tags of the supervisor's and the caller's descriptors in the loop.
  struct Tags {
    uint32_t input, input_sink, output, error, output_sink, error_sink;
  };

  // `io` and the objects it refers to must outlive this object.
  Streams(linux_sys::EventLoop& loop, const CommandIo& io, StreamEnds ends, const Tags& tags, int64_t budget);
  // To be sent to PID 1.
  const WorkloadStreams& workload() const { return ends_.workload; }
  void Start();
  void Dispatch(uint32_t tag);
  // Reads the remaining bytes of the pipes and writes out pending bytes.
  void Drain();
  void ResizeTerminal();
  uint64_t total_bytes() const { return output_.total + error_.total; }
  // Both streams together keep no more than the budget.
  CapturedStream TakeOutput() { return output_.kept.Take(Share(output_)); }
  CapturedStream TakeError() { return error_.kept.Take(Share(error_)); }

 private:
  struct Flow {
    Flow(int from, int to, uint64_t budget) : source(from), sink(to), kept(budget) {}
    int source;
    int sink;            // -1: none, or closed
    bool ended = false;  // the source has ended
    uint64_t total = 0;
    std::string pending;  // read, but not yet accepted by the sink
    OutputBuffer kept;
  };
  uint64_t Share(const Flow& flow) const;
  // False when the source has nothing more for now.
  bool Read(Flow& flow);
  void Write(Flow& flow, bool may_wait);
  void Pump(Flow& flow, uint32_t source_tag, uint32_t sink_tag);
  void PumpInput();
  void CloseInput();

  bool is_captured() const { return io_.kind == CommandIo::Kind::kCapture; }

  linux_sys::EventLoop& loop_;
  const CommandIo& io_;
  StreamEnds ends_;
  const Tags tags_;
  const uint64_t budget_;
  // The caller may pass one descriptor for several streams, but the loop identifies each by its number.
  UniqueFd own_copies_[2];
  Flow output_, error_;
  bool input_open_ = false;
  bool input_is_file_ = false;  // cannot be waited for
  bool input_waits_for_sink_ = false;
  size_t input_sent_ = 0;  // of CommandIo::input
  std::string input_pending_;
};

}  // namespace caisson::sandbox
