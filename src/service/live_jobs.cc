#include "service/live_jobs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"

namespace caisson::service {
namespace {

// What is kept for those who follow along. The result has its own head and tail.
constexpr int64_t kMaxLogBytes = int64_t{16} << 20;

}  // namespace

Result<std::shared_ptr<LiveJob>> LiveJob::Make(store::Job job, std::shared_ptr<Changes> changes) {
  std::shared_ptr<LiveJob> live(new LiveJob(std::move(job), std::move(changes)));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  live->stop_read_ = UniqueFd(ends[0]);
  live->stop_write_ = UniqueFd(ends[1]);
  return live;
}

void LiveJob::RequestStop(Stop why) {
  const std::lock_guard lock(mutex_);
  if (stop_ == Stop::kNone) stop_ = why;
  stop_write_.Reset();
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

void LiveJob::AddOutput(const std::string& stream, const std::string& check, std::string_view bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto room = static_cast<size_t>(kMaxLogBytes - log_bytes_);
    bytes = bytes.substr(0, std::min(bytes.size(), room));
    if (bytes.empty()) return;
    log_.push_back({log_bytes_, stream, check, std::string(bytes)});
    log_bytes_ += static_cast<int64_t>(bytes.size());
  }
  changes_->Notify(job_.id);
}

Log LiveJob::ReadLog(int64_t from_offset) const {
  const std::lock_guard lock(mutex_);
  Log log;
  auto chunk = std::partition_point(log_.begin(), log_.end(), [&](const LogChunk& one) {
    return one.offset + static_cast<int64_t>(one.bytes.size()) <= from_offset;
  });
  for (; chunk != log_.end(); ++chunk) {
    LogChunk part = *chunk;
    if (part.offset < from_offset) {
      part.bytes.erase(0, static_cast<size_t>(from_offset - part.offset));
      part.offset = from_offset;
    }
    log.chunks.push_back(std::move(part));
  }
  log.next_offset = std::max(from_offset, log_bytes_);
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
