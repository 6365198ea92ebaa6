// The attempts that run here and now: what the rest of the service can do to them, and see of them, meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "service/changes.h"
#include "service/service.h"
#include "store/store.h"

namespace caisson::service {

// Why an attempt was stopped from outside.
enum class Stop : uint8_t { kNone, kCancelled, kShutdown, kLeaseLost };

// One attempt. Its worker's thread owns the work; the other functions may be called from any thread.
class LiveJob {
 public:
  static Result<std::shared_ptr<LiveJob>> Make(store::Job job, std::shared_ptr<Changes> changes);

  const store::Job& job() const { return job_; }
  store::Lease lease() const { return {job_.id, job_.lease_token}; }

  // Comes to its end when the attempt is to stop.
  int stop_fd() const { return stop_read_.get(); }
  void RequestStop(Stop why);  // the first reason stays
  Stop stop() const;

  // Kept in memory and written to the store a little later, many at once: see WriteEvents.
  void AddEvent(const char* type, const nlohmann::json& members);
  // The newest state the store has not been told of.
  void Enter(store::JobState state);
  // Hands what was not written yet to the store. The lock keeps the order: whoever ends the job takes the rest with
  // TakeEvents while he holds it.
  Status WriteEvents(store::Store& store);
  [[nodiscard]] std::unique_lock<std::mutex> LockEvents() { return std::unique_lock(writing_); }
  std::vector<store::Event> TakeEvents();

  void AddOutput(const std::string& stream, const std::string& check, std::string_view bytes);
  Log ReadLog(int64_t from_offset) const;

 private:
  LiveJob(store::Job job, std::shared_ptr<Changes> changes) : job_(std::move(job)), changes_(std::move(changes)) {}

  const store::Job job_;
  const std::shared_ptr<Changes> changes_;
  UniqueFd stop_read_;
  std::mutex writing_;
  mutable std::mutex mutex_;  // for all below
  UniqueFd stop_write_;
  Stop stop_ = Stop::kNone;
  std::vector<store::Event> events_;
  store::JobState state_ = store::JobState::kQueued;
  store::JobState written_state_ = store::JobState::kQueued;
  std::vector<LogChunk> log_;
  int64_t log_bytes_ = 0;
};

class LiveJobs {
 public:
  void Add(const std::shared_ptr<LiveJob>& job);
  void Remove(const std::string& job_id);
  std::shared_ptr<LiveJob> Find(const std::string& job_id) const;  // null: not here
  std::vector<std::shared_ptr<LiveJob>> All() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<LiveJob>> jobs_;
};

}  // namespace caisson::service
