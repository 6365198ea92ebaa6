// Repairs jobs after crashes and lost machines, and ends jobs whose time is over. One thread; it may run on every
// service that shares a database, because each repair is one transaction that only one of them can win.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "service/service_context.h"

namespace caisson::service {

class Reconciler {
 public:
  explicit Reconciler(ServiceContext& context);
  ~Reconciler();

  // Takes back the jobs of an earlier process of this node: no worker runs them, although their leases may be valid.
  // Called before any worker starts.
  Status TakeBackOwn();

 private:
  void Loop();
  void Round();
  void LostWorkers();
  void OverdueJobs();
  void UnansweredApprovals();
  void OldThings();
  void Repair(const store::Job& job);

  ServiceContext& context_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  int64_t cleaned_ms_ = 0;
  std::thread thread_;
};

}  // namespace caisson::service
