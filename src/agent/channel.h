// The agent's end of the stream of frames. Sending never blocks: what the other side does not take yet is kept, and
// callers stop producing while much is kept.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/protocol.h"
#include "base/result.h"

namespace caisson::agent {

class Channel {
 public:
  // Borrowed. Makes both non-blocking.
  Channel(int input, int output);

  int input() const { return input_; }
  int output() const { return output_; }

  void Send(Kind kind, std::string_view body);
  void Send(Kind kind, const Result<std::string>& body);
  // Writes what the other side takes. False when the other side is gone.
  bool Flush();
  // Waits until everything is written; false when the other side is gone.
  bool FlushAll();
  bool has_pending() const { return sent_ < pending_.size(); }
  // So much is kept that the workload should wait.
  bool is_full() const { return pending_.size() - sent_ > kFullBytes; }

  // Reads what has arrived; false when the other side is gone.
  bool Fill();
  // An error is final.
  Result<std::optional<Frame>> Next() { return reader_.Next(); }
  // Waits for the next frame; an error when the other side is gone.
  Result<Frame> Await();

 private:
  static constexpr size_t kFullBytes = size_t{1} << 20;

  int input_, output_;
  FrameReader reader_;
  std::string pending_;
  size_t sent_ = 0;  // of pending_
};

}  // namespace caisson::agent
