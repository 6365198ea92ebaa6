#include "crowd.h"

#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "contender.h"

namespace caisson::bench {
namespace {

// Sandboxes that sleep until the benchmark ends them, each with a thread that waits for it.
class Crowd {
 public:
  Crowd(runtime::Runtime& runtime, StopSource end) : runtime_(runtime), end_(std::move(end)) {}
  ~Crowd() { Dissolve(); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Starts one more sandbox; returns the nanoseconds until its command ran.
  Result<int64_t> Add() {
    std::promise<Status> up;
    std::future<Status> is_up = up.get_future();
    const int64_t begin = MonotonicNanos();
    threads_.emplace_back([this, promise = std::move(up)]() mutable { Sleep(promise); });
    CAISSON_TRY_VOID(is_up.get());
    return MonotonicNanos() - begin;
  }

  // Ends all sandboxes; returns the nanoseconds until all are removed.
  int64_t Dissolve() {
    const int64_t begin = MonotonicNanos();
    end_.Stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return MonotonicNanos() - begin;
  }

 private:
  static Program Sleeper() { return {{}, {"/bin/sh", "-c", "echo up; exec sleep 100000"}, {}}; }

  // Runs one sandbox from start to end, on its own thread.
  void Sleep(std::promise<Status>& up) {
    bool told = false;
    const auto tell = [&](Status status) {
      if (!std::exchange(told, true)) up.set_value(std::move(status));
    };
    Result<std::unique_ptr<runtime::Run>> run = runtime_.Start(PlanOf(Sleeper()));
    if (!run) return tell(run.error());
    runtime::ExecuteOptions options;
    options.timeout_ms = 3'600'000;
    options.last = true;
    options.stop = &end_;
    const auto on_output = [&](OutputStream, std::string_view) { tell({}); };
    const Result<CommandOutcome> outcome =
        (*run)->Execute({Sleeper().inside, {}}, CommandIo::Capture(std::nullopt, on_output), options);
    tell(outcome ? Error::Invalid("bench: a sleeper ended before it spoke") : outcome.error());
  }

  runtime::Runtime& runtime_;
  const StopSource end_;
  std::vector<std::thread> threads_;
};

Result<std::vector<int64_t>> Probe(runtime::Runtime& runtime, int times) {
  CAISSON_TRY(const Program program, ReadProgram("true"));
  std::vector<int64_t> nanos;
  for (int i = 0; i < times; ++i) {
    CAISSON_TRY(const Steps steps, RunInside(runtime, program));
    nanos.push_back(steps.result());
  }
  return nanos;
}

}  // namespace

Status HoldCrowd(runtime::Runtime& runtime, int size, int probes) {
  CAISSON_TRY(const std::vector<int64_t> alone, Probe(runtime, probes));
  std::printf("{\"alone\": %s}\n", JsonOf(alone).c_str());
  std::fflush(stdout);
  CAISSON_TRY(StopSource end, StopSource::Make());
  Crowd crowd(runtime, std::move(end));
  std::vector<int64_t> starts;
  for (int i = 0; i < size; ++i) {
    CAISSON_TRY(const int64_t nanos, crowd.Add());
    starts.push_back(nanos);
  }
  CAISSON_TRY(const std::vector<int64_t> beside, Probe(runtime, probes));
  std::printf("{\"starts\": %s, \"beside\": %s}\n", JsonOf(starts).c_str(), JsonOf(beside).c_str());
  std::fflush(stdout);
  while (std::getchar() != '\n' && std::feof(stdin) == 0) {
  }
  std::printf("{\"end\": [%lld]}\n", static_cast<long long>(crowd.Dissolve()));
  return {};
}

}  // namespace caisson::bench
