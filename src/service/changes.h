// Who wants to know when something happens to a job. Any thread.
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
  // `changed` is called by whoever notifies, without a lock held; it may be called once more after the subscription
  // ended, by a thread that had begun to.
  std::unique_ptr<Subscription> Watch(const std::string& job_id, std::function<void()> changed);
  void Notify(const std::string& job_id);

 private:
  class Watcher;
  std::mutex mutex_;
  std::multimap<std::string, std::shared_ptr<std::function<void()>>> watchers_;
};

}  // namespace caisson::service
