// Follows the pod of one Job at the API server. A watch that ends is continued from the last version that was seen; one
// whose version is too old begins with a new list.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/kubernetes/api.h"
#include "runtime/kubernetes/pod_state.h"

namespace caisson::runtime::kubernetes {

// Thread: a thread of its own follows; the methods are for any other.
class PodWatch {
 public:
  PodWatch(std::shared_ptr<const Api> api, const std::string& job);
  ~PodWatch();
  PodWatch(const PodWatch&) = delete;
  PodWatch& operator=(const PodWatch&) = delete;

  // Waits until `enough` accepts the last state or the time is over, and returns that state; nothing while no pod was
  // seen. An error when the API server cannot be watched at all.
  Result<std::optional<PodState>> Await(const std::function<bool(const PodState&)>& enough, int64_t within_ms);

 private:
  void Follow();
  Status List(std::string& version);
  Status Watch(std::string& version);
  void Take(PodState pod);
  bool IsStopped();

  const std::shared_ptr<const Api> api_;
  const std::string selector_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::optional<PodState> pod_;
  std::optional<Error> failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace caisson::runtime::kubernetes
