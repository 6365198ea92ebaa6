// Watches the memory and the processes of the command where no cgroup limits them, as the supervisor of a native
// sandbox does for an ordinary user: samples the whole pid namespace, often enough that a workload cannot take much
// more than its limit.
//
// Runs: agent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"
#include "base/violation.h"
#include "sandbox/spec.h"
#include "sandbox/tree_meter.h"

namespace caisson::agent {

class LimitWatch {
 public:
  // `limits` must outlive it. `scratch` is the file system of /scratch, which counts its own pages.
  static Result<std::unique_ptr<LimitWatch>> Make(const sandbox::Limits& limits, dev_t scratch);

  // A new command starts: what earlier ones used does not count.
  void Begin();
  // A thread is about to be created.
  void BeforeThread(int64_t now_ms);
  void Sample(int64_t now_ms, int64_t scratch_bytes);
  int64_t next_sample_ms() const { return next_sample_ms_; }

  // The limit for which the command must end.
  struct Passed {
    Ending ending = Ending::kMemoryLimit;
    std::vector<std::pair<std::string, EvidenceValue>> evidence;
  };
  const std::optional<Passed>& passed() const { return passed_; }

  // Of the command, as far as seen.
  bool was_above_process_limit() const { return was_above_; }
  int64_t most_tasks() const { return most_tasks_; }
  int64_t most_bytes() const { return most_bytes_; }

 private:
  LimitWatch(const sandbox::Limits& limits, sandbox::TreeMeter::Views views)
      : limits_(limits), meter_(std::move(views)) {}
  void CheckTasks(int64_t now_ms, int64_t measured, int64_t asked_for);
  void Pass(Ending ending, std::vector<std::pair<std::string, EvidenceValue>> evidence);

  const sandbox::Limits& limits_;
  sandbox::TreeMeter meter_;
  std::optional<Passed> passed_;
  int64_t next_sample_ms_ = 0;
  int64_t tasks_at_most_ = 0;
  int64_t above_since_ms_ = -1;
  int64_t refused_ = 0;  // threads that were asked for above the limit
  bool was_above_ = false;
  int64_t most_tasks_ = 0, most_bytes_ = 0;
  int64_t cpu_before_ms_ = 0;
};

}  // namespace caisson::agent
