// The threads that do the work: so many workers, each with one job at a time, and one that keeps their leases alive and
// tells the store what happens meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "service/parts.h"

namespace caisson::service {

class Workers {
 public:
  // `job_memory` is what one job may take: as much must be free before one is begun.
  Workers(Parts& parts, int64_t count, int64_t job_memory);
  ~Workers();

  // There may be something to do.
  void Wake();
  // Begins nothing more, waits for what runs, and after `grace_ms` stops the rest: those jobs are queued again.
  void Drain(int64_t grace_ms);

  bool MemoryFits() const;

 private:
  void Work();
  void Pulse();
  bool AwaitTurn();
  void Renew();

  Parts& parts_;
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

// Bytes the kernel could give out without swapping.
int64_t AvailableMemory();

}  // namespace caisson::service
