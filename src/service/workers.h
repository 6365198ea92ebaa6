// The worker threads, each with one job at a time, and one thread that renews their leases and writes their progress to
// the store.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "service/service_context.h"

namespace caisson::service {

class Workers {
 public:
  // `job_memory` is the memory that one job may use; that much must be free before a job begins.
  Workers(ServiceContext& context, int64_t count, int64_t job_memory);
  ~Workers();

  // Wakes the workers: there may be a new job.
  void Wake();
  // Begins no new job, waits for running jobs, and stops the remaining ones after `grace_ms`: they are queued again.
  void Drain(int64_t grace_ms);

  bool MemoryFits() const;

 private:
  void Work();
  void Pulse();
  bool AwaitTurn();
  void Renew();

  ServiceContext& context_;
  const int64_t job_memory_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  bool stopping_ = false;
  bool pulse_stopping_ = false;
  bool pending_ = true;
  int64_t busy_ = 0;
  std::vector<std::thread> threads_;
  std::thread pulse_;
};

}  // namespace caisson::service
