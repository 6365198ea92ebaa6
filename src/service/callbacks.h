// Delivers the callbacks that are due, and tries again what was not taken. One thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "service/callback_sender.h"
#include "service/parts.h"

namespace caisson::service {

class Callbacks {
 public:
  // `result_of` gives the body to send for a job.
  Callbacks(Parts& parts, CallbackSender sender,
            std::function<Result<std::string>(const std::string& job_id)> result_of);
  ~Callbacks();

 private:
  void Loop();
  void Deliver(const store::Callback& callback);

  Parts& parts_;
  const CallbackSender sender_;
  const std::function<Result<std::string>(const std::string&)> result_of_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace caisson::service
