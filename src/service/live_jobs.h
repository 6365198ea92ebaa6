// The attempts that run in this service, as other threads can observe and stop them.
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
#include "base/stop.h"
#include "base/unique_fd.h"
#include "service/changes.h"
#include "service/service.h"
#include "store/store.h"

namespace caisson::service {

// Why another thread stopped an attempt.
enum class Stop : uint8_t { kNone, kCancelled, kShutdown, kLeaseLost };

// One attempt. Its worker's thread owns the work; the other functions may be called from any thread.
class LiveJob {
 public:
  // `log_directory` is where long output is kept; empty: in memory.
  static Result<std::shared_ptr<LiveJob>> Make(store::Job job, std::shared_ptr<Changes> changes,
                                               std::string log_directory = "");

  const store::Job& job() const { return job_; }
  store::Lease lease() const { return {job_.id, job_.lease_token}; }

  // Stops when the attempt must stop.
  const StopToken& stop_token() const { return stop_source_; }
  void RequestStop(Stop why);  // the first reason stays
  Stop stop() const;

  // Buffered, and written to the store a little later in batches: see WriteEvents.
  void AddEvent(const char* type, const nlohmann::json& members);
  // The newest state that is not in the store yet.
  void Enter(store::JobState state);
  // Writes buffered events to the store. The lock keeps their order: the thread that ends the job holds it while it
  // takes the remaining events with TakeEvents.
  Status WriteEvents(store::Store& store);
  [[nodiscard]] std::unique_lock<std::mutex> LockEvents() { return std::unique_lock(writing_); }
  std::vector<store::Event> TakeEvents();

  void AddOutput(const std::string& stream, std::string_view bytes);
  // Returns about `max_bytes`, but at least the bytes of one call of AddOutput.
  Log ReadLog(int64_t from_offset, int64_t max_bytes) const;

 private:
  LiveJob(store::Job job, std::shared_ptr<Changes> changes, std::string log_directory, StopSource stop_source)
      : job_(std::move(job)),
        changes_(std::move(changes)),
        log_directory_(std::move(log_directory)),
        stop_source_(std::move(stop_source)) {}

  // A file once the output is long. Positions count from the beginning in both.
  bool AppendToLog(std::string_view text);
  std::string ReadFromLog(int64_t position, size_t size) const;

  const store::Job job_;
  const std::shared_ptr<Changes> changes_;
  const std::string log_directory_;
  const StopSource stop_source_;
  std::mutex writing_;
  mutable std::mutex mutex_;  // for all below
  Stop stop_ = Stop::kNone;
  std::vector<store::Event> events_;
  store::JobState state_ = store::JobState::kQueued;
  store::JobState written_state_ = store::JobState::kQueued;
  // The output in the order of arrival, each piece behind four bytes: its length, and in the highest bit whether it is
  // of standard error. `log_marks_` has the offset in the output and the position in the log of a piece now and then.
  std::string log_text_;
  UniqueFd log_file_;
  int64_t log_size_ = 0;   // with the lengths
  int64_t log_bytes_ = 0;  // without them
  std::vector<std::pair<int64_t, int64_t>> log_marks_;
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
