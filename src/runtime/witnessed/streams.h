// The caller's side of a command's streams, where the bytes arrive in frames: captures them, or passes them on to the
// caller's descriptors. Every byte is counted here, outside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/command_io.h"
#include "base/outcome.h"
#include "sandbox/output_buffer.h"

namespace caisson::runtime::witnessed {

class OuterStreams {
 public:
  // `io` and what it refers to must outlive this object.
  OuterStreams(const CommandIo& io, int64_t budget);

  // Bytes of the command.
  void Take(OutputStream stream, std::string_view bytes);
  uint64_t total_bytes() const { return output_.total + error_.total; }
  // So much waits for the caller's descriptors that the command should wait.
  bool is_full() const { return output_.pending.size() + error_.pending.size() > (size_t{1} << 20); }
  // The descriptors that something waits for; -1 for none.
  int output_sink() const { return output_.pending.empty() ? -1 : output_.sink; }
  int error_sink() const { return error_.pending.empty() ? -1 : error_.sink; }
  // Writes what the descriptors take now; with `wait`, waits for slow readers up to a bound.
  void Write(bool wait);

  // Input: more bytes for the command, if there are any now; false when there never will be.
  bool wants_input() const { return input_open_; }
  // Readable when there is more input; -1 for input that is known already.
  int input_source() const { return io_.kind == CommandIo::Kind::kCapture ? -1 : io_.stdin_fd; }
  // At most `most` bytes; empty when there are none just now or the input has ended (wants_input tells).
  std::string ReadInput(size_t most);

  CapturedStream TakeOutput() { return output_.kept.Take(Share(output_)); }
  CapturedStream TakeError() { return error_.kept.Take(Share(error_)); }

 private:
  struct Flow {
    Flow(int to, uint64_t budget) : sink(to), kept(budget) {}
    int sink;
    uint64_t total = 0;
    std::string pending;
    sandbox::OutputBuffer kept;
  };
  uint64_t Share(const Flow& flow) const;
  static void Write(Flow& flow, bool wait);

  const CommandIo& io_;
  const uint64_t budget_;
  const bool captured_;
  Flow output_, error_;
  bool input_open_;
  size_t input_sent_ = 0;
};

}  // namespace caisson::runtime::witnessed
