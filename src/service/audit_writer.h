// The service's audit log: a record is on the disk before the recorded action happens. Threads that have something to
// record at the same time share one fsync.
//
// An action that another caller may win (an answer to an approval, a cancellation) is noted in the store, in the
// transaction that decides it, and copied to the log from there: Note, then the transaction, then WriteNotes. No
// further step relies on such a decision before its note is written: WriteNotesOf.
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
#include "store/store.h"

namespace caisson::service {

class AuditWriter {
 public:
  // `node` names this log among those of the services on one database.
  static Result<std::unique_ptr<AuditWriter>> Open(const std::string& path, std::string node = "node");

  // Returns when the entry is on the disk.
  Status Record(audit::Entry entry);
  // About a job, by the service or by a caller.
  Status Record(const store::Job& job, verify::Actor actor, audit::Details details);

  // For a transaction that makes the entry true.
  store::AuditNote Note(const store::Job& job, verify::Actor actor, audit::Details details) const;
  // Writes all notes of this node to the log, each once.
  Status WriteNotes(store::Store& store);
  // The same; kConflict when another node has notes about the job that it did not write yet.
  Status WriteNotesOf(store::Store& store, const std::string& job_id);

  bool Usable() const { return usable_.load(); }
  // Probes the disk by writing and removing a file beside the log; success marks the log as usable again.
  void Probe();

 private:
  AuditWriter(audit::AuditLog log, std::string path, std::string node)
      : log_(std::move(log)), path_(std::move(path)), node_(std::move(node)) {}

  struct Waiting {
    audit::Entry entry;
    bool done = false;
    Status status;
  };
  void WriteBatch(std::unique_lock<std::mutex>& lock);

  const audit::AuditLog log_;
  const std::string path_, node_;
  std::mutex notes_mutex_;    // one at a time writes notes
  bool notes_known_ = false;  // whether the log was searched for notes that a crash left unmarked in the store
  std::atomic<bool> usable_{true};
  std::mutex mutex_;
  std::condition_variable written_;
  std::vector<Waiting*> waiting_;
  bool writing_ = false;
};

inline verify::Actor TheService() { return {"caissond", verify::Role::kService}; }

}  // namespace caisson::service
