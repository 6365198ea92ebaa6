// The standard streams of one command, between the workload and us: captured, or passed through as they come. Every
// byte is counted on its way. A reader that is slow slows the workload, never us; an orphan that keeps a pipe open is
// no reason to wait.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/outcome.h"
#include "base/unique_fd.h"
#include "linux/event_loop.h"
#include "sandbox/output.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

class Streams {
 public:
  struct Ends {
    Stdio stdio = Stdio::kCapture;
    int terminal = -1;  // master side, or
    int stdout_pipe = -1, stderr_pipe = -1;
    UniqueFd* stdin_pipe = nullptr;  // closed when the input ends
    const std::string* stdin_bytes = nullptr;
    const std::function<void(OutputStream, std::string_view)>* on_output = nullptr;  // told of what is captured
    uint32_t input_tag, input_sink_tag, output_tag, error_tag, output_sink_tag, error_sink_tag;
  };

  Streams(linux_sys::EventLoop& loop, const Ends& ends, int64_t budget);
  void Start();
  void Dispatch(uint32_t tag);
  // Takes what is left in the pipes and writes out what is pending.
  void Drain();
  void ResizeTerminal();
  uint64_t total_bytes() const { return output_.total + error_.total; }
  // Both together keep no more than the budget.
  CapturedStream TakeOutput() { return output_.kept.Take(Share(output_)); }
  CapturedStream TakeError() { return error_.kept.Take(Share(error_)); }

 private:
  struct Flow {
    Flow(int from, int to, uint64_t budget) : source(from), sink(to), kept(budget) {}
    int source;
    int sink;  // -1: capture only
    uint64_t total = 0;
    std::string pending;  // read, and not yet taken by the sink
    OutputKeeper kept;
  };
  uint64_t Share(const Flow& flow) const;
  // False when the source has nothing more for now.
  bool Read(Flow& flow);
  void Write(Flow& flow, bool may_wait);
  void Pump(Flow& flow, uint32_t source_tag, uint32_t sink_tag);
  void PumpInput();
  void CloseInput();

  linux_sys::EventLoop& loop_;
  Ends ends_;
  uint64_t budget_;
  Flow output_, error_;
  bool input_open_ = false;
  bool input_is_file_ = false;  // cannot be waited for
  bool input_waits_for_sink_ = false;
  size_t input_sent_ = 0;  // of stdin_bytes
  std::string input_pending_;
};

}  // namespace caisson::sandbox
