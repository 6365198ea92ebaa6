// Lifecycle events: one JSON object per line, in order, each line written at once.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/outcome.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::verify {

class EventLog {
 public:
  // A log that discards its events.
  EventLog() = default;
  // `destination` is a file to append to, or "-" for standard output.
  static Result<EventLog> Open(const std::string& destination);
  // Passes each event, without its envelope, to a receiver that adds its own.
  using Sink = std::function<void(const char* type, const nlohmann::json& members)>;
  static EventLog To(Sink sink);

  // Names the run that all later events belong to.
  void Begin(const std::string& request_id);
  // `members` is an object; the envelope is added.
  void Write(const char* type, nlohmann::json members);
  // Writes an event of another process unchanged, with its envelope.
  void Relay(const nlohmann::json& event);
  bool enabled() const { return fd_ >= 0 || sink_; }

 private:
  UniqueFd owned_;
  int fd_ = -1;
  Sink sink_;
  int64_t sequence_ = 0;
  std::string run_id_;
  std::string request_id_;
};

// network_allowed and network_denied, one for each destination of a command; `members` goes into each.
void WriteNetworkEvents(const CommandOutcome& outcome, const nlohmann::json& members, EventLog& events);

}  // namespace caisson::verify
