#include "service/callbacks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace caisson::service {
namespace {

constexpr std::chrono::milliseconds kRound{250};
constexpr int64_t kTimeoutMs = 10'000;
constexpr int64_t kBatch = 16;
constexpr int64_t kFirstDelayMs = 1'000;
constexpr int64_t kMaxDelayMs = 3'600'000;

}  // namespace

Callbacks::Callbacks(Parts& parts, CallbackSender sender,
                     std::function<Result<std::string>(const std::string&)> result_of)
    : parts_(parts), sender_(std::move(sender)), result_of_(std::move(result_of)) {
  thread_ = std::thread([this] { Loop(); });
}

Callbacks::~Callbacks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Callbacks::Loop() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kRound, [this] { return stopping_; })) {
    lock.unlock();
    const int64_t now = UnixMillis();
    // Kept from others for as long as all of them may take.
    const Result<std::vector<store::Callback>> due =
        parts_.store->ClaimCallbacks(now, now + 2 * kBatch * kTimeoutMs, kBatch);
    if (!due) parts_.metrics.Add("caisson_store_errors_total");
    for (size_t i = 0; due && i < due->size(); ++i) Deliver((*due)[i]);
    lock.lock();
  }
}

void Callbacks::Deliver(const store::Callback& callback) {
  const auto settle = [&](const char* outcome, int64_t next_ms) {
    parts_.metrics.Add("caisson_callbacks_total", std::string("outcome=\"") + outcome + "\"");
    if (!parts_.store->SettleCallback(callback.job_id, callback.tries + 1, next_ms))
      parts_.metrics.Add("caisson_store_errors_total");
  };
  const Result<std::string> body = result_of_(callback.job_id);
  if (!body) return settle("given_up", 0);
  const Result<int> status = sender_.Send({callback.url, callback.job_id, callback.tries + 1, *body}, kTimeoutMs);
  if (status && *status >= 200 && *status < 300) return settle("delivered", 0);
  if (!status && status.error().kind == ErrorKind::kDenied) return settle("refused", 0);
  if (callback.tries + 1 >= parts_.config.callback_tries) return settle("given_up", 0);
  const int64_t delay = std::min(kFirstDelayMs << std::min<int64_t>(callback.tries, 20), kMaxDelayMs);
  settle("retried", UnixMillis() + delay);
}

}  // namespace caisson::service
