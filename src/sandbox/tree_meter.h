// Measures the sandbox's process tree through its own /proc, for machines where no cgroup counts it.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace caisson::sandbox {

struct TreeMeasure {
  int64_t tasks = 0;           // threads of every process but PID 1
  int64_t resident_bytes = 0;  // summed over processes: pages that several share are counted once for each
  int64_t cpu_ms = 0;          // of PID 1 and everything it reaped
};

class TreeMeter {
 public:
  explicit TreeMeter(UniqueFd proc) : proc_(std::move(proc)) {}
  TreeMeasure Measure() const;
  // Proportional set size over all processes: shared pages counted once. Slower; asked for when the quick sum is too
  // big.
  int64_t ProportionalBytes() const;

 private:
  template <typename Visit>
  void ForEachProcess(Visit visit) const;
  UniqueFd proc_;
};

}  // namespace caisson::sandbox
