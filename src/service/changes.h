// Subscriptions to changes of jobs. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "service/service.h"

namespace caisson::service {

class Changes : public std::enable_shared_from_this<Changes> {
 public:
  // The notifying thread calls `changed` without holding a lock. A thread that is already notifying may call it once
  // more after the subscription ended.
  std::unique_ptr<Subscription> Watch(const std::string& job_id, std::function<void()> changed);
  void Notify(const std::string& job_id);

 private:
  class Watcher;
  std::mutex mutex_;
  std::multimap<std::string, std::shared_ptr<std::function<void()>>> watchers_;
};

}  // namespace caisson::service
