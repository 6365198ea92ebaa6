// Destinations that no rule mentions and that a person is asked about, in an attended run. A decision outlives the
// connection that caused it: a client that gave up finds it when it comes again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "egress/event_log.h"
#include "egress/loop.h"

namespace caisson::egress {

class Questions : public Waiter {
 public:
  // `on_decided(connection, allowed)` is called for each waiting connection.
  using OnDecided = std::function<void(uint32_t connection, bool allowed)>;
  Questions(Loop& loop, EventLog& events, OnDecided on_decided)
      : loop_(loop), events_(events), on_decided_(std::move(on_decided)) {}

  void Attend(uint32_t wait_ms) { wait_ms_ = wait_ms; }
  bool attended() const { return wait_ms_ != 0; }

  enum class State : uint8_t { kPending, kAllowed, kDenied };
  // A connection that has left no longer waits; the question stays.
  void Leave(const std::string& name, uint16_t port, uint32_t connection);
  State Ask(const std::string& name, uint16_t port, const char* protocol, uint32_t connection);
  void Take(const control::Verdict& verdict);

  void Ready(unsigned, uint32_t) override {}  // watches no descriptor
  void Expired() override;

 private:
  static constexpr size_t kMaxQuestions = 256;
  struct One {
    uint32_t id = 0;
    bool pending = true;
    uint8_t scope = control::Verdict::kDeny;
    int64_t until = 0;
    std::set<uint32_t> waiting;
  };
  void Decide(One& one, uint8_t scope);
  void SetNextDeadline();

  Loop& loop_;
  EventLog& events_;
  OnDecided on_decided_;
  uint32_t wait_ms_ = 0;
  uint32_t next_id_ = 1;
  std::map<std::pair<std::string, uint16_t>, One> questions_;
};

}  // namespace caisson::egress
