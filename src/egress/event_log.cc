#include "egress/event_log.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace caisson::egress {

namespace {
constexpr size_t kMaxUnsent = 1024;
}

void EventLog::Send(std::string frame) {
  unsent_.push_back(std::move(frame));
  Flush();
  while (unsent_.size() > kMaxUnsent) {
    if (!control::SendFrame(control_, unsent_.front(), {}, 0)) return;  // the owner is gone; the loop will notice
    unsent_.pop_front();
  }
}

void EventLog::Flush() {
  while (!unsent_.empty()) {
    if (!control::SendFrame(control_, unsent_.front(), {}, MSG_DONTWAIT)) return;
    unsent_.pop_front();
  }
}

void EventLog::Denied(const control::Event& event) {
  const std::string key = std::to_string(event.what) + "\n" + event.name + "\n" + std::to_string(event.port) + "\n" +
                          event.reason + "\n" + event.address;
  const auto found = denials_.find(key);
  if (found != denials_.end()) {
    ++found->second.count;
    return;
  }
  if (denials_.size() >= kMaxDenials) {
    ++totals_.events_unlisted;
    return;
  }
  denials_.emplace(key, Repeated{event, 1});
  Send(control::Pack(event));
}

void EventLog::SendRepetitions() {
  for (const auto& [key, repeated] : denials_) {
    if (repeated.count < 2) continue;
    control::Event event = repeated.event;
    event.count = static_cast<uint32_t>(std::min<uint64_t>(repeated.count, UINT32_MAX));
    Send(control::Pack(event));
  }
  denials_.clear();
}

void EventLog::Settle() {
  SendRepetitions();
  control::Settled settled;
  settled.questions_malformed = totals_.questions_malformed - settled_.questions_malformed;
  settled.events_unlisted = totals_.events_unlisted - settled_.events_unlisted;
  settled_ = totals_;
  Send(control::Pack(settled));
}

void EventLog::Finish() {
  SendRepetitions();
  Send(control::Pack(totals_));
  while (!unsent_.empty() && control::SendFrame(control_, unsent_.front(), {}, 0)) unsent_.pop_front();
}

}  // namespace caisson::egress
