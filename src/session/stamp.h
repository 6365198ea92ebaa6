// The moment a session began, on the clock of the project's file system. A host entry with a ctime at or after it
// counts as changed by the host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson::session {

struct Stamp {
  int64_t ctime_ns = 0;  // since the epoch

  std::string ToText() const { return std::to_string(ctime_ns); }
  static Result<Stamp> Parse(std::string_view text);
};

// Taken from a nameless file made in the directory. Where that is impossible (read-only, no permission), the machine's
// clock less kClockSlackNs: a network file system's clock may be behind. Take it before the overlay is mounted or the
// copy is made.
inline constexpr int64_t kClockSlackNs = 2'000'000'000;
Result<Stamp> TakeStamp(int directory_fd);

}  // namespace caisson::session
