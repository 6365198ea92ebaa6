#include "verify/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "linux/files.h"
#include "verify/request.h"
#include "verify/result.h"

namespace caisson::verify {

Result<EventLog> EventLog::Open(const std::string& destination) {
  EventLog log;
  if (destination == "-") {
    log.fd_ = STDOUT_FILENO;
    return log;
  }
  Result<UniqueFd> file = linux_sys::OpenOutput(destination, O_APPEND);
  if (!file) return std::move(file).error().In("--events");
  log.owned_ = *std::move(file);
  log.fd_ = log.owned_.get();
  return log;
}

EventLog EventLog::To(Sink sink) {
  EventLog log;
  log.sink_ = std::move(sink);
  return log;
}

void EventLog::Begin(const std::string& request_id) {
  request_id_ = request_id;
  run_id_ = GenerateRequestId();
  sequence_ = 0;
}

void EventLog::Write(const char* type, nlohmann::json members) {
  if (sink_) sink_(type, members);
  if (fd_ < 0) return;
  members["schema_version"] = 1;
  members["seq"] = sequence_++;
  members["time"] = UtcNow();
  members["run_id"] = run_id_;
  members["request_id"] = request_id_;
  members["type"] = type;
  Relay(members);
}

void EventLog::Relay(const nlohmann::json& event) {
  if (fd_ < 0) return;
  const std::string line = event.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t written = 0; written < line.size();) {
    const ssize_t size = ::write(fd_, line.data() + written, line.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    written += static_cast<size_t>(size);
  }
}

void WriteNetworkEvents(const CommandOutcome& outcome, const nlohmann::json& members, EventLog& events) {
  if (!events.enabled()) return;
  for (const NetworkUse& use : outcome.network) {
    nlohmann::json event = members;
    event["network"] = ToJson(use);
    events.Write(use.allowed ? "network_allowed" : "network_denied", std::move(event));
  }
}

}  // namespace caisson::verify
