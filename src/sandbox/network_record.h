// Records the network use of one command: turns the events of caisson-egress into violations and into a list of
// destinations.
//
// Runs: supervisor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "egress/control/messages.h"

namespace caisson::sandbox {

class NetworkRecord {
 public:
  static constexpr size_t kMaxUses = 1024;

  // Returns the violation that the event describes, if any. The first of several equal denials is reported at once, and
  // their number when the command has ended; the violation's count says how many further attempts it stands for.
  std::optional<Violation> Add(const egress::control::Event& event);

  // What one event says, by itself.
  static NetworkUse UseOf(const egress::control::Event& event);

  std::vector<NetworkUse> Take() { return std::move(uses_); }

 private:
  NetworkUse& Find(const egress::control::Event& event);

  std::vector<NetworkUse> uses_;
  std::map<std::string, size_t> places_;  // in uses_
};

}  // namespace caisson::sandbox
