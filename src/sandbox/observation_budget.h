// Charges the supervisor's work for a sandbox to that sandbox.
//
// An observed call costs the supervisor more processor time than the program that makes it, and the supervisor is in no
// cgroup of the sandbox. So its time counts against the sandbox's CPU limit: a budget is filled at the rate of the
// limit, less what the workload itself uses, and observed calls wait while the budget is empty. Only calls wait; the
// supervisor's clock does not.
#pragma once

#include <algorithm>
#include <cstdint>

namespace caisson::sandbox {

class ObservationBudget {
 public:
  // `cpu_millis`: the sandbox's CPU limit, 1000 for one processor.
  explicit ObservationBudget(int64_t cpu_millis)
      : limit_(cpu_millis), rate_(cpu_millis), left_ns_(Capacity()), most_ns_(Capacity()) {}

  // `own_ns`: processor time of the supervisor so far. Both clocks only go forward.
  void Charge(int64_t now_ns, int64_t own_ns) {
    if (last_now_ns_ != 0) {
      left_ns_ = std::min(most_ns_, left_ns_ + (now_ns - last_now_ns_) * rate_ / 1000);
      left_ns_ -= own_ns - last_own_ns_;
    }
    last_now_ns_ = now_ns;
    last_own_ns_ = own_ns;
  }
  bool is_empty() const { return left_ns_ < 0; }

  // Called when the budget is empty. The processor time that the workload used since the last call reduces the
  // supervisor's share, but never below a quarter, so that observed calls make progress.
  void ShareWith(int64_t workload_ns) {
    const int64_t elapsed = std::max<int64_t>(last_now_ns_ - shared_at_ns_, 1);
    const int64_t used = shared_at_ns_ == 0 ? 0 : (workload_ns - workload_ns_) * 1000 / elapsed;
    rate_ = std::clamp(limit_ - used, std::max<int64_t>(limit_ / 4, 1), limit_);
    shared_at_ns_ = last_now_ns_;
    workload_ns_ = workload_ns;
  }
  // The time at which the budget is filled again.
  int64_t FilledAt() const { return last_now_ns_ + (is_empty() ? -left_ns_ * 1000 / rate_ : 0); }

 private:
  // A burst of a tenth of a second is free: most programs open their files in one.
  int64_t Capacity() const { return std::max<int64_t>(limit_ * 100'000, 20'000'000); }

  const int64_t limit_;
  int64_t rate_;
  int64_t left_ns_;
  const int64_t most_ns_;
  int64_t last_now_ns_ = 0, last_own_ns_ = 0;
  int64_t shared_at_ns_ = 0, workload_ns_ = 0;
};

}  // namespace caisson::sandbox
