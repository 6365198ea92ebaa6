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

// Assembles events from the pieces of a stream. Comments and fields other than id and data are ignored: the document
// repeats the type.
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

// True for an event that ends its stream.
bool EndsJob(const std::string& type);

// Passes on every event of the job after `after_seq` as it happens, and returns after the event that ended the job. A
// lost connection is opened again and continues where it stopped, at most `patience` times in a row.
Status Follow(const Client& client, const std::string& job_id, int64_t after_seq,
              const std::function<void(const nlohmann::json&)>& on_event, int patience = 30);

}  // namespace caisson::client
