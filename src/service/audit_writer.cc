#include "service/audit_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "service/documents.h"

namespace caisson::service {

namespace {

constexpr int64_t kNotesAtOnce = 100;

audit::Entry EntryOf(const store::Job& job, verify::Actor actor, audit::Details details) {
  audit::Entry entry;
  entry.actor = std::move(actor);
  entry.tenant = job.tenant;
  entry.request_id = job.request_id;
  entry.run_id = job.id;
  entry.details = std::move(details);
  return entry;
}

// The entry as text, whatever its place in a chain.
std::string TextOf(audit::Entry entry) {
  return audit::Canonical(audit::Chain(std::move(entry), std::nullopt, UtcTime(0)));
}

// Which of the notes are in the log already.
Result<std::set<std::string>> FindWritten(const std::string& path, const std::vector<store::AuditNote>& notes) {
  std::set<std::string> wanted, written;
  for (const store::AuditNote& note : notes) wanted.insert(note.record);
  std::ifstream log(path);
  if (!log) return Error::System(errno, "read the audit log");
  for (std::string line; std::getline(log, line);) {
    const Result<audit::Record> record = audit::ParseAuditRecord(line);
    if (!record) continue;
    std::string text = TextOf(record->entry);
    if (wanted.count(text) != 0) written.insert(std::move(text));
  }
  return written;
}

}  // namespace

Result<std::unique_ptr<AuditWriter>> AuditWriter::Open(const std::string& path, std::string node) {
  CAISSON_TRY(audit::AuditLog log, audit::AuditLog::Open(path));
  return std::unique_ptr<AuditWriter>(new AuditWriter(std::move(log), path, std::move(node)));
}

store::AuditNote AuditWriter::Note(const store::Job& job, verify::Actor actor, audit::Details details) const {
  return {NewJobId(UnixMillis()), node_, job.id, TextOf(EntryOf(job, std::move(actor), std::move(details)))};
}

Status AuditWriter::WriteNotes(store::Store& store) {
  const std::lock_guard lock(notes_mutex_);
  for (;;) {
    CAISSON_TRY(const std::vector<store::AuditNote> notes, store.AuditNotes(node_, kNotesAtOnce));
    if (notes.empty()) break;
    std::set<std::string> written;
    // An earlier process may have died after it wrote a note and before it marked the note as written.
    if (!notes_known_) {
      CAISSON_TRY(written, FindWritten(path_, notes));
    }
    std::vector<std::string> ids;
    for (const store::AuditNote& note : notes) {
      ids.push_back(note.id);
      if (written.count(note.record) != 0) continue;
      CAISSON_TRY(audit::Record record, audit::ParseAuditRecord(note.record));
      CAISSON_TRY_VOID(Record(std::move(record.entry)));
    }
    // If this fails, the next call looks for the notes in the log before it writes them again.
    notes_known_ = false;
    CAISSON_TRY_VOID(store.ForgetAuditNotes(ids));
    notes_known_ = static_cast<int64_t>(notes.size()) < kNotesAtOnce;
  }
  notes_known_ = true;
  return {};
}

Status AuditWriter::WriteNotesOf(store::Store& store, const std::string& job_id) {
  CAISSON_TRY(const bool any, store.HasAuditNotes(job_id));
  if (!any) return {};
  CAISSON_TRY_VOID(WriteNotes(store));
  CAISSON_TRY(const bool left, store.HasAuditNotes(job_id));
  if (left) return Error::Conflict("another service has not yet recorded the decision about job " + job_id);
  return {};
}

Status AuditWriter::Record(audit::Entry entry) {
  Waiting mine{std::move(entry), false, {}};
  std::unique_lock lock(mutex_);
  waiting_.push_back(&mine);
  // A thread that finds no writer active writes its own entry and those of all waiting threads.
  while (!mine.done) {
    if (writing_)
      written_.wait(lock);
    else
      WriteBatch(lock);
  }
  return mine.status;
}

void AuditWriter::WriteBatch(std::unique_lock<std::mutex>& lock) {
  writing_ = true;
  std::vector<Waiting*> batch = std::exchange(waiting_, {});
  lock.unlock();
  std::vector<audit::Entry> entries;
  entries.reserve(batch.size());
  for (Waiting* one : batch) entries.push_back(std::move(one->entry));
  std::vector<Status> fates(batch.size());
  if (const Result<audit::Head> all = log_.Append(entries); !all) {
    // An entry that the log's reader would refuse fails alone; a failing disk fails every entry.
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

Status AuditWriter::Record(const store::Job& job, verify::Actor actor, audit::Details details) {
  return Record(EntryOf(job, std::move(actor), std::move(details)));
}

void AuditWriter::Probe() {
  if (Usable()) return;
  // As large as the largest record, so that the next one will fit.
  const std::string name = path_ + ".probe";
  UniqueFd file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return;
  const std::string bytes(audit::kMaxRecordBytes, 'x');
  const bool fits =
      ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && ::fsync(file.get()) == 0;
  ::unlink(name.c_str());
  // Open would report a torn line; an operator must repair it.
  if (fits && audit::AuditLog::Open(path_)) usable_ = true;
}

}  // namespace caisson::service
