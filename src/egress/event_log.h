// The record: every allow and every deny, sent to the owner in order. A sandbox can make millions of requests that are
// denied. Equal denials therefore become one event and a count at the end; beyond kMaxDenials different denials, the
// log only counts.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "egress/control/messages.h"

namespace caisson::egress {

class EventLog {
 public:
  static constexpr size_t kMaxDenials = 512;

  explicit EventLog(int control) : control_(control) {}

  // Sends a frame. Waits for the owner when it has not read for long, because no record may be lost.
  void Send(std::string frame);
  // Tries to send the frames that are still unsent.
  void Flush();
  bool has_unsent() const { return !unsent_.empty(); }

  void Allowed(const control::Event& event) { Send(control::Pack(event)); }
  void Denied(const control::Event& event);

  // Sends how often denials were repeated so far, then Settled. After this, an equal denial becomes a new event.
  void Settle();
  // Sends how often denials were repeated, then the totals.
  void Finish();

  control::Totals& totals() { return totals_; }

 private:
  void SendRepetitions();
  struct Repeated {
    control::Event event;
    uint64_t count = 0;
  };

  int control_;
  std::deque<std::string> unsent_;
  std::map<std::string, Repeated> denials_;
  control::Totals totals_;
  control::Totals settled_;  // the totals at the last Settle
};

}  // namespace caisson::egress
