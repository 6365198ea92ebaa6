#include "service/live_jobs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "linux/files.h"

namespace caisson::service {
namespace {

// Output kept for live readers. The result has its own head and tail.
constexpr int64_t kMaxLogBytes = int64_t{16} << 20;
constexpr int64_t kMaxLogSize = 2 * kMaxLogBytes;  // with the lengths of its pieces
// More is kept in a file.
constexpr int64_t kLogInMemory = int64_t{64} << 10;
constexpr int64_t kMarkInterval = int64_t{64} << 10;
constexpr uint32_t kStderrBit = uint32_t{1} << 31;

}  // namespace

Result<std::shared_ptr<LiveJob>> LiveJob::Make(store::Job job, std::shared_ptr<Changes> changes,
                                               std::string log_directory) {
  CAISSON_TRY(StopSource stop_source, StopSource::Make());
  return std::shared_ptr<LiveJob>(
      new LiveJob(std::move(job), std::move(changes), std::move(log_directory), std::move(stop_source)));
}

void LiveJob::RequestStop(Stop why) {
  const std::lock_guard lock(mutex_);
  if (stop_ == Stop::kNone) stop_ = why;
  stop_source_.Stop();
}

Stop LiveJob::stop() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void LiveJob::AddEvent(const char* type, const nlohmann::json& members) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back({0, UnixMillis(), type, members.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)});
  }
}

void LiveJob::Enter(store::JobState state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

Status LiveJob::WriteEvents(store::Store& store) {
  const std::lock_guard order(writing_);
  std::vector<store::Event> events;
  store::JobState state = store::JobState::kQueued;
  bool entered = false;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
    state = state_;
    entered = std::exchange(written_state_, state_) != state_;
  }
  if (events.empty() && !entered) return {};
  Status written = entered ? store.Advance(lease(), state, UnixMillis(), events) : store.AppendEvents(job_.id, events);
  changes_->Notify(job_.id);
  return written;
}

std::vector<store::Event> LiveJob::TakeEvents() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

bool LiveJob::AppendToLog(std::string_view text) {
  if (!log_file_ && log_size_ + static_cast<int64_t>(text.size()) > kLogInMemory) {
    Result<UniqueFd> file = linux_sys::OpenUnnamed(log_directory_);
    if (!file || !linux_sys::WriteAll(file->get(), log_text_)) return false;
    log_file_ = *std::move(file);
    log_text_ = std::string();
  }
  if (!log_file_)
    log_text_ += text;
  else if (!linux_sys::WriteAll(log_file_.get(), text))
    return false;
  log_size_ += static_cast<int64_t>(text.size());
  return true;
}

std::string LiveJob::ReadFromLog(int64_t position, size_t size) const {
  size = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(size), log_size_ - position));
  if (!log_file_) return log_text_.substr(static_cast<size_t>(position), size);
  std::string text(size, '\0');
  const ssize_t count = ::pread(log_file_.get(), text.data(), text.size(), position);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

void LiveJob::AddOutput(const std::string& stream, std::string_view bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto room = static_cast<size_t>(std::max<int64_t>(0, kMaxLogBytes - log_bytes_));
    bytes = bytes.substr(0, std::min(bytes.size(), room));
    if (bytes.empty() || log_size_ > kMaxLogSize) return;
    const uint32_t length = static_cast<uint32_t>(bytes.size()) | (stream == "stderr" ? kStderrBit : 0);
    std::string piece(reinterpret_cast<const char*>(&length), sizeof(length));
    piece += bytes;
    const int64_t position = log_size_;
    if (!AppendToLog(piece)) {
      log_size_ = kMaxLogSize + 1;  // disk full: live readers see no more output; the result is not affected
      return;
    }
    if (log_marks_.empty() || position - log_marks_.back().second >= kMarkInterval)
      log_marks_.emplace_back(log_bytes_, position);
    log_bytes_ += static_cast<int64_t>(bytes.size());
  }
  changes_->Notify(job_.id);
}

Log LiveJob::ReadLog(int64_t from_offset, int64_t max_bytes) const {
  const std::lock_guard lock(mutex_);
  Log log;
  log.next_offset = from_offset;
  if (from_offset >= log_bytes_ || log_size_ > kMaxLogSize) return log;
  auto mark = std::partition_point(log_marks_.begin(), log_marks_.end(),
                                   [&](const auto& one) { return one.first <= from_offset; });
  if (mark != log_marks_.begin()) --mark;
  int64_t offset = mark->first;
  int64_t position = mark->second;
  std::string window;
  int64_t window_at = 0;
  const auto view = [&](int64_t at, int64_t size) -> std::string_view {
    if (at < window_at || at + size > window_at + static_cast<int64_t>(window.size())) {
      window = ReadFromLog(at, static_cast<size_t>(std::max(size, 2 * kMarkInterval)));
      window_at = at;
    }
    return std::string_view(window).substr(static_cast<size_t>(at - window_at), static_cast<size_t>(size));
  };
  while (log.next_offset - from_offset < max_bytes && offset < log_bytes_) {
    uint32_t length = 0;
    const std::string_view head = view(position, sizeof(length));
    if (head.size() < sizeof(length)) break;
    std::memcpy(&length, head.data(), sizeof(length));
    const char* stream = (length & kStderrBit) != 0 ? "stderr" : "stdout";
    const int64_t size = length & ~kStderrBit;
    position += static_cast<int64_t>(sizeof(length));
    const int64_t skipped = std::clamp<int64_t>(from_offset - offset, 0, size);
    if (skipped < size) {
      const int64_t want = std::min(size - skipped, max_bytes - (log.next_offset - from_offset));
      const std::string_view bytes = view(position + skipped, want);
      if (bytes.empty()) break;
      log.next_offset += static_cast<int64_t>(bytes.size());
      if (!log.chunks.empty() && log.chunks.back().stream == stream)
        log.chunks.back().bytes += bytes;
      else
        log.chunks.push_back({offset + skipped, stream, std::string(bytes)});
    }
    position += size;
    offset += size;
  }
  return log;
}

void LiveJobs::Add(const std::shared_ptr<LiveJob>& job) {
  const std::lock_guard lock(mutex_);
  jobs_[job->job().id] = job;
}

void LiveJobs::Remove(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  jobs_.erase(job_id);
}

std::shared_ptr<LiveJob> LiveJobs::Find(const std::string& job_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<LiveJob>> LiveJobs::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<LiveJob>> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) all.push_back(job);
  return all;
}

}  // namespace caisson::service
