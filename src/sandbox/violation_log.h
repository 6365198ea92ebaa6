// The violations of one command, stored so that many of one kind cannot hide another kind.
//
// A kind is a class with a reason. The first violation of each kind is always listed, and so is the violation that
// ended the command; of the others, a few of each kind are listed as examples. Violation::count of the first of a kind
// says how many attempts it stands for, so the counts of the list add up to the number of attempts.
//
// Reasons come from the filters and from this folder, never from the workload, so the number of kinds is small. If
// there are more than kMaxKinds, further kinds are counted with the first of their class.
//
// Runs: supervisor.
#pragma once

#include <cstddef>
#include <vector>

#include "base/violation.h"

namespace caisson::sandbox {

class ViolationLog {
 public:
  static constexpr size_t kListedPerKind = 16;
  static constexpr size_t kMaxKinds = 48;

  // True when the violation is listed; false when it was only counted.
  bool Add(Violation violation, bool ended_command);
  // Counts further attempts like one that was added earlier.
  void Count(const Violation& violation);
  bool Has(ViolationClass violation_class) const { return FirstOf(violation_class) < listed_.size(); }
  // In the order in which they were added.
  std::vector<Violation> Take();

 private:
  struct Kind {
    size_t first;   // index into listed_
    size_t listed;  // how many of it are in listed_
  };
  // The index of the first one of that class; the size of the list when there is none.
  size_t FirstOf(ViolationClass violation_class) const;

  std::vector<Violation> listed_;
  std::vector<Kind> kinds_;
};

}  // namespace caisson::sandbox
