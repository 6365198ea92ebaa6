// Repairs what crashes, lost machines and the passing of time leave behind. One thread; it may run on every service
// that shares a database, since each repair is one transaction that only one of them can win.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "service/parts.h"

namespace caisson::service {

class Reconciler {
 public:
  explicit Reconciler(Parts& parts);
  ~Reconciler();

  // Jobs an earlier life of this node left: nobody works on them, whatever their lease says. Before any worker starts.
  Status TakeBackOwn();

 private:
  void Loop();
  void Round();
  void LostWorkers();
  void OverdueJobs();
  void UnansweredApprovals();
  void OldThings();
  void Repair(const store::Job& job);

  Parts& parts_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  int64_t cleaned_ms_ = 0;
  std::thread thread_;
};

}  // namespace caisson::service
