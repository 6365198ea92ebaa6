// The service's audit log: what is about to happen is on the disk before it happens. Threads that have something to
// record at the same time share one fsync.
//
// When the log cannot be written (a full disk), nothing that must be recorded happens: Record fails, `Usable` turns
// false, and the service takes no new jobs until a probe shows that it can write again. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "audit/audit_log.h"
#include "base/result.h"
#include "store/job.h"

namespace caisson::service {

class Trail {
 public:
  static Result<std::unique_ptr<Trail>> Open(const std::string& path);

  // Returns when the entry is on the disk.
  Status Record(audit::Entry entry);
  // About a job, by the service or by a caller.
  Status Record(const store::Job& job, verify::Actor actor, audit::Details details);

  bool Usable() const { return usable_.load(); }
  // Writes and removes a file beside the log; on success the log counts as usable again.
  void Probe();

 private:
  Trail(audit::AuditLog log, std::string path) : log_(std::move(log)), path_(std::move(path)) {}

  struct Waiting {
    audit::Entry entry;
    bool done = false;
    Status status;
  };
  void WriteBatch(std::unique_lock<std::mutex>& lock);

  const audit::AuditLog log_;
  const std::string path_;
  std::atomic<bool> usable_{true};
  std::mutex mutex_;
  std::condition_variable written_;
  std::vector<Waiting*> waiting_;
  bool writing_ = false;
};

inline verify::Actor TheService() { return {"caissond", verify::Role::kService}; }

}  // namespace caisson::service
