// Delivers due callbacks and retries those that failed. Uses a few threads. Each tenant has at most one delivery under
// way, so a slow or silent server delays only its own tenant.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "service/callback_sender.h"
#include "service/service_context.h"

namespace caisson::service {

class Callbacks {
 public:
  // `result_of` gives the body to send for a job.
  Callbacks(ServiceContext& context, CallbackSender sender,
            std::function<Result<Document>(const std::string& job_id)> result_of);
  ~Callbacks();

 private:
  void Loop();
  void Deliver(const store::Callback& callback);

  ServiceContext& context_;
  const CallbackSender sender_;
  const std::function<Result<Document>(const std::string&)> result_of_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::set<std::string> busy_;  // tenants with a delivery under way
  std::vector<std::thread> threads_;
};

}  // namespace caisson::service
