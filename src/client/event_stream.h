// Server-sent events, and following a job by them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/client.h"

namespace caisson::client {

// Puts events together from the pieces of a stream. Comments and fields other than id and data are passed over: the
// type stands in the document as well.
class EventParser {
 public:
  using OnEvent = std::function<Status(int64_t seq, const std::string& data)>;
  Status Take(std::string_view bytes, const OnEvent& on_event);

 private:
  Status TakeLine(std::string_view line, const OnEvent& on_event);

  std::string line_;
  std::string data_;
  int64_t seq_ = 0;
};

// True for the events behind which nothing follows.
bool EndsJob(const std::string& type);

// Hands on every event of the job from after `after_seq` on, as they happen, and returns behind the one that ended it.
// A connection that is lost is made anew and goes on where it was; `patience` says how often in a row.
Status Follow(const Client& client, const std::string& job_id, int64_t after_seq,
              const std::function<void(const nlohmann::json&)>& on_event, int patience = 30);

}  // namespace caisson::client
