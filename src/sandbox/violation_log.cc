#include "sandbox/violation_log.h"

#include <algorithm>
#include <utility>

#include "sandbox/mutation.h"

namespace caisson::sandbox {

size_t ViolationLog::FirstOf(ViolationClass violation_class) const {
  const auto found = std::find_if(listed_.begin(), listed_.end(),
                                  [&](const Violation& listed) { return listed.violation_class == violation_class; });
  return static_cast<size_t>(found - listed_.begin());
}

bool ViolationLog::Add(Violation violation, bool ended_command) {
  if (CAISSON_LEFT_OUT("violation_kinds")) {
    if (listed_.size() >= 64) return false;
    listed_.push_back(std::move(violation));
    return true;
  }
  const auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& known) {
    const Violation& first = listed_[known.first];
    return first.violation_class == violation.violation_class && first.reason == violation.reason;
  });
  if (kind != kinds_.end()) {
    if (kind->listed >= kListedPerKind && !ended_command) {
      listed_[kind->first].count += violation.count;
      return false;
    }
    ++kind->listed;
  } else if (kinds_.size() >= kMaxKinds && Has(violation.violation_class) && !ended_command) {
    listed_[FirstOf(violation.violation_class)].count += violation.count;
    return false;
  } else {
    kinds_.push_back({listed_.size(), 1});
  }
  listed_.push_back(std::move(violation));
  return true;
}

void ViolationLog::Count(const Violation& violation) {
  const auto same = std::find_if(listed_.begin(), listed_.end(), [&](const Violation& listed) {
    return listed.violation_class == violation.violation_class && listed.reason == violation.reason;
  });
  if (same != listed_.end()) {
    same->count += violation.count;
  } else {
    Add(violation, false);
  }
}

std::vector<Violation> ViolationLog::Take() {
  kinds_.clear();
  return std::exchange(listed_, {});
}

}  // namespace caisson::sandbox
