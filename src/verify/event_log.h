// Lifecycle events: one JSON object per line, in order, each written whole.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::verify {

class EventLog {
 public:
  // Writes nowhere.
  EventLog() = default;
  // `destination` is a file to append to, or "-" for standard output.
  static Result<EventLog> Open(const std::string& destination);
  // Hands each event on, without its envelope, to somebody who has one of his own.
  using Sink = std::function<void(const char* type, const nlohmann::json& members)>;
  static EventLog To(Sink sink);

  // Names the run all later events belong to.
  void Begin(const std::string& request_id);
  // `members` is an object; the envelope is added.
  void Write(const char* type, nlohmann::json members);
  // An event as somebody else wrote it, envelope and all.
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

}  // namespace caisson::verify
