#include "runtime/kubernetes/pod_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/percent.h"

namespace caisson::runtime::kubernetes {

namespace {

constexpr int64_t kFirstPauseMs = 100;
constexpr int64_t kLongestPauseMs = 2'000;
constexpr int64_t kUnreachableMs = 30'000;  // after this long without an answer the pod counts as lost

int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

}  // namespace

PodWatch::PodWatch(std::shared_ptr<const Api> api, const std::string& job)
    : api_(std::move(api)),
      selector_("labelSelector=" + PercentEncode("batch.kubernetes.io/job-name=" + job)),
      thread_([this] { Follow(); }) {}

PodWatch::~PodWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool PodWatch::IsStopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

Result<std::optional<PodState>> PodWatch::Await(const std::function<bool(const PodState&)>& enough, int64_t within_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(within_ms), [&] { return failure_ || (pod_ && enough(*pod_)); });
  if (failure_) return *failure_;
  return pod_;
}

void PodWatch::Take(PodState pod) {
  const std::lock_guard lock(mutex_);
  // A Job without retries has one pod; a second one would run without its agent being told anything.
  if (pod_ && pod_->name != pod.name) return;
  pod_ = std::move(pod);
  changed_.notify_all();
}

Status PodWatch::List(std::string& version) {
  CAISSON_TRY(const Reply reply, api_->Request("GET", api_->PodsPath() + "?" + selector_));
  CAISSON_TRY(PodList list, ReadPodList(reply.body));
  version = list.resource_version;
  std::string known;
  {
    const std::lock_guard lock(mutex_);
    if (pod_) known = pod_->name;
  }
  bool found = known.empty();
  for (PodState& pod : list.pods) {
    found = found || pod.name == known;
    Take(std::move(pod));
  }
  if (found) return {};
  // It was deleted while the watch was interrupted.
  const std::lock_guard lock(mutex_);
  pod_->deleted = true;
  changed_.notify_all();
  return {};
}

Status PodWatch::Watch(std::string& version) {
  WatchLines lines;
  const std::string path = api_->PodsPath() + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&" + selector_ +
                           "&resourceVersion=" + PercentEncode(version);
  const auto take = [&](std::string_view bytes) -> Status {
    lines.Append(bytes);
    for (;;) {
      CAISSON_TRY(const std::optional<std::string> line, lines.Next());
      if (!line) return {};
      CAISSON_TRY(WatchEvent event, ReadWatchLine(*line));
      if (event.kind == WatchEvent::Kind::kExpired) {
        version.clear();
        return Error::Conflict("watch: the version is too old");
      }
      version = event.resource_version;
      if (event.kind == WatchEvent::Kind::kPod) Take(std::move(event.pod));
    }
  };
  return api_->Stream(path, take, [this] { return IsStopped(); });
}

void PodWatch::Follow() {
  std::string version;  // empty: list first
  int64_t pause = kFirstPauseMs;
  int64_t answered = NowMs();
  while (!IsStopped()) {
    const Status done = version.empty() ? List(version) : Watch(version);
    if (done) {
      pause = kFirstPauseMs;
      answered = NowMs();
      continue;
    }
    if (done.error().kind == ErrorKind::kConflict) continue;
    // A version that the server does not take, or a stream that was cut: the next list tells.
    const bool hopeless = done.error().kind == ErrorKind::kDenied || done.error().kind == ErrorKind::kInvalid ||
                          NowMs() - answered > kUnreachableMs;
    version.clear();
    std::unique_lock lock(mutex_);
    if (hopeless) {
      failure_ = done.error();
      changed_.notify_all();
      return;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(pause), [this] { return stopped_; });
    pause = std::min(2 * pause, kLongestPauseMs);
  }
}

}  // namespace caisson::runtime::kubernetes
