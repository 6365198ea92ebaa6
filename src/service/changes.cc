#include "service/changes.h"

#include <utility>
#include <vector>

namespace caisson::service {

class Changes::Watcher : public Subscription {
 public:
  Watcher(std::shared_ptr<Changes> changes, std::string job_id, std::shared_ptr<std::function<void()>> changed)
      : changes_(std::move(changes)), job_id_(std::move(job_id)), changed_(std::move(changed)) {}

  ~Watcher() override {
    const std::lock_guard lock(changes_->mutex_);
    const auto [begin, end] = changes_->watchers_.equal_range(job_id_);
    for (auto it = begin; it != end; ++it) {
      if (it->second != changed_) continue;
      changes_->watchers_.erase(it);
      return;
    }
  }

 private:
  std::shared_ptr<Changes> changes_;
  std::string job_id_;
  std::shared_ptr<std::function<void()>> changed_;
};

std::unique_ptr<Subscription> Changes::Watch(const std::string& job_id, std::function<void()> changed) {
  auto shared = std::make_shared<std::function<void()>>(std::move(changed));
  {
    const std::lock_guard lock(mutex_);
    watchers_.emplace(job_id, shared);
  }
  return std::make_unique<Watcher>(shared_from_this(), job_id, std::move(shared));
}

void Changes::Notify(const std::string& job_id) {
  std::vector<std::shared_ptr<std::function<void()>>> called;
  {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = watchers_.equal_range(job_id);
    for (auto it = begin; it != end; ++it) called.push_back(it->second);
  }
  for (const auto& changed : called) (*changed)();
}

}  // namespace caisson::service
