// The objects that the parts of the service share. caissond's main creates it once; every object may be used from any
// thread and outlives the threads that use it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "attest/key.h"
#include "runtime/runtime.h"
#include "service/audit_writer.h"
#include "service/blob_store.h"
#include "service/byte_budget.h"
#include "service/changes.h"
#include "service/config.h"
#include "service/live_jobs.h"
#include "service/metrics.h"
#include "service/network_quota.h"
#include "store/store.h"
#include "verify/admission.h"
#include "verify/job_message.h"

namespace caisson::service {

struct ServiceContext {
  Config config;
  std::string worker;           // "node.incarnation"
  verify::Authority authority;  // the rules and profiles that apply to all jobs
  std::unique_ptr<store::Store> store;
  std::unique_ptr<BlobStore> blobs;
  std::unique_ptr<AuditWriter> audit_writer;
  runtime::Runtimes runtimes;
  std::function<bool()> runtime_ready;    // whether a run could be started, as far as known
  std::optional<attest::PrivateKey> key;  // signs results
  std::shared_ptr<Changes> changes = std::make_shared<Changes>();
  Metrics metrics;
  ByteBudget large_documents{int64_t{48} << 20};  // bounds large documents in memory: requests being read, dead letters
  std::unique_ptr<NetworkQuota> network;          // set with the configuration
  LiveJobs live;

  verify::RetryPolicy Retry() const {
    verify::RetryPolicy retry;
    retry.initial_delay_ms = config.retry_initial_ms;
    retry.max_delay_ms = config.retry_max_ms;
    return retry;
  }
};

}  // namespace caisson::service
