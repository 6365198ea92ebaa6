// What the parts of the service share. Made once, by caissond's main; everything in it may be used from any thread and
// outlives the threads that use it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "attest/key.h"
#include "runtime/runtime.h"
#include "service/blobs.h"
#include "service/changes.h"
#include "service/config.h"
#include "service/live_jobs.h"
#include "service/metrics.h"
#include "service/trail.h"
#include "store/store.h"
#include "verify/admission.h"
#include "verify/job_message.h"

namespace caisson::service {

struct Parts {
  Config config;
  std::string worker;           // "node.incarnation"
  verify::Authority authority;  // the rules and profiles all jobs are judged by
  std::unique_ptr<store::Store> store;
  std::unique_ptr<Blobs> blobs;
  std::unique_ptr<Trail> trail;
  std::unique_ptr<runtime::Runtime> runtime;
  std::function<bool()> runtime_ready;    // whether a run could be started at all, as far as can be told
  std::optional<attest::PrivateKey> key;  // signs results
  std::shared_ptr<Changes> changes = std::make_shared<Changes>();
  Metrics metrics;
  LiveJobs live;

  verify::RetryPolicy Retry() const {
    verify::RetryPolicy retry;
    retry.initial_delay_ms = config.retry_initial_ms;
    retry.max_delay_ms = config.retry_max_ms;
    return retry;
  }
};

}  // namespace caisson::service
