// Frames to and from the agent of one container. Waiting is bounded by the caller's deadline; nothing here blocks else.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/protocol.h"
#include "base/result.h"
#include "runtime/witnessed/container.h"

namespace caisson::runtime::witnessed {

class Conversation {
 public:
  explicit Conversation(std::unique_ptr<Container> container) : container_(std::move(container)) {}

  Container& container() { return *container_; }
  bool is_over() const { return over_; }

  // Queues a frame and sends what can be sent at once.
  Status Send(agent::Kind kind, const Result<std::string>& body);
  Status Flush();
  bool has_pending() const { return sent_ < pending_.size(); }
  size_t pending_bytes() const { return pending_.size() - sent_; }

  // Reads what has arrived. The end of the stream is no error; is_over tells it.
  Status Fill();
  // The next frame; absent when there is none yet. An error that the agent sent is returned as an error.
  Result<std::optional<agent::Frame>> Next();
  // Waits for a frame of that kind.
  Result<agent::Frame> Await(agent::Kind kind, int64_t within_ms);

 private:
  std::unique_ptr<Container> container_;
  agent::FrameReader frames_;
  std::string pending_;
  size_t sent_ = 0;
  bool over_ = false;
};

}  // namespace caisson::runtime::witnessed
