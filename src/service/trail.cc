#include "service/trail.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/unique_fd.h"

namespace caisson::service {

Result<std::unique_ptr<Trail>> Trail::Open(const std::string& path) {
  CAISSON_TRY(audit::AuditLog log, audit::AuditLog::Open(path));
  return std::unique_ptr<Trail>(new Trail(std::move(log), path));
}

Status Trail::Record(audit::Entry entry) {
  Waiting mine{std::move(entry), false, {}};
  std::unique_lock lock(mutex_);
  waiting_.push_back(&mine);
  // Whoever finds nobody writing writes for all who wait, himself among them.
  while (!mine.done) {
    if (writing_)
      written_.wait(lock);
    else
      WriteBatch(lock);
  }
  return mine.status;
}

void Trail::WriteBatch(std::unique_lock<std::mutex>& lock) {
  writing_ = true;
  std::vector<Waiting*> batch = std::exchange(waiting_, {});
  lock.unlock();
  std::vector<audit::Entry> entries;
  entries.reserve(batch.size());
  for (Waiting* one : batch) entries.push_back(std::move(one->entry));
  std::vector<Status> fates(batch.size());
  if (const Result<audit::Head> all = log_.Append(entries); !all) {
    // An entry the log's own reader would refuse fails alone; a disk that fails, fails each.
    for (size_t i = 0; i < entries.size(); ++i) {
      const Result<audit::Head> one = batch.size() == 1 ? all : log_.Append(entries[i]);
      if (one) continue;
      fates[i] = one.error();
      if (one.error().kind != ErrorKind::kInvalid || one.error().errno_value != 0) usable_ = false;
    }
  }
  lock.lock();
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i]->status = std::move(fates[i]);
    batch[i]->done = true;
  }
  writing_ = false;
  written_.notify_all();
}

Status Trail::Record(const store::Job& job, verify::Actor actor, audit::Details details) {
  audit::Entry entry;
  entry.actor = std::move(actor);
  entry.tenant = job.tenant;
  entry.request_id = job.request_id;
  entry.run_id = job.id;
  entry.details = std::move(details);
  return Record(std::move(entry));
}

void Trail::Probe() {
  if (Usable()) return;
  // As much as the largest record, so that the next one will fit.
  const std::string name = path_ + ".probe";
  UniqueFd file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return;
  const std::string bytes(audit::kMaxRecordBytes, 'x');
  const bool fits =
      ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && ::fsync(file.get()) == 0;
  ::unlink(name.c_str());
  // A torn line would be found by Open; it takes a person.
  if (fits && audit::AuditLog::Open(path_)) usable_ = true;
}

}  // namespace caisson::service
