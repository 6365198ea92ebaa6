#include "service/callbacks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace caisson::service {
namespace {

constexpr std::chrono::milliseconds kRound{250};
constexpr int64_t kTimeoutMs = 10'000;
constexpr int kThreads = 4;
constexpr int64_t kFirstDelayMs = 1'000;
constexpr int64_t kMaxDelayMs = 3'600'000;

}  // namespace

Callbacks::Callbacks(ServiceContext& context, CallbackSender sender,
                     std::function<Result<Document>(const std::string&)> result_of)
    : context_(context), sender_(std::move(sender)), result_of_(std::move(result_of)) {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Loop(); });
}

Callbacks::~Callbacks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Callbacks::Loop() {
  std::unique_lock lock(mutex_);
  bool more = false;
  while (more || !wake_.wait_for(lock, kRound, [this] { return stopping_; })) {
    more = false;
    if (stopping_) return;
    const int64_t now = UnixMillis();
    // With the lock held: no two threads may take a callback of the same tenant. Kept from other services for longer
    // than a delivery takes.
    Result<std::vector<store::Callback>> due =
        context_.store->ClaimCallbacks(now, now + 3 * kTimeoutMs, 1, {busy_.begin(), busy_.end()});
    if (!due) context_.metrics.Add("caisson_store_errors_total");
    if (!due || due->empty()) continue;
    const store::Callback& callback = due->front();
    busy_.insert(callback.tenant);
    lock.unlock();
    Deliver(callback);
    lock.lock();
    busy_.erase(callback.tenant);
    more = true;
  }
}

void Callbacks::Deliver(const store::Callback& callback) {
  const auto settle = [&](const char* outcome, int64_t next_ms) {
    context_.metrics.Add("caisson_callbacks_total", std::string("outcome=\"") + outcome + "\"");
    if (!context_.store->SettleCallback(callback.job_id, callback.tries + 1, next_ms))
      context_.metrics.Add("caisson_store_errors_total");
  };
  Result<Document> body = result_of_(callback.job_id);
  if (!body) return settle("given_up", 0);
  const Result<int> status =
      sender_.Send({callback.url, callback.job_id, callback.tries + 1, *std::move(body)}, kTimeoutMs);
  if (status && *status >= 200 && *status < 300) return settle("delivered", 0);
  if (!status && status.error().kind == ErrorKind::kDenied) return settle("refused", 0);
  if (callback.tries + 1 >= context_.config.callback_tries) return settle("given_up", 0);
  const int64_t delay = std::min(kFirstDelayMs << std::min<int64_t>(callback.tries, 20), kMaxDelayMs);
  settle("retried", UnixMillis() + delay);
}

}  // namespace caisson::service
