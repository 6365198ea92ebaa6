// Sends a request to a service and follows its job; shared by submit and verify.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "client/client.h"

namespace caisson::cli {

// NOLINTNEXTLINE(bugprone-exception-escape): moving a json value is noexcept, whatever it is made of.
struct Shipment {
  nlohmann::json request;
  std::string archive;  // the one the request names, to be sent first; empty: none
};

// Prepares the command line's PATH: a file, a directory, an archive, or a request with its source.path. Local files are
// packed. kUnsupported when it cannot be (client::PackSource).
Result<Shipment> PackShipment(const std::string& path);

// A request without an idempotency key gets one, so that a retry after a lost answer does not create a second job.
void EnsureKey(nlohmann::json& request);

// Sends it until it is accepted or finally refused; returns the job. Retries for half a minute while the service
// restarts or is full.
Result<nlohmann::json> SendShipment(const client::Client& client, const Shipment& shipment);

// Follows the job to its end and returns its result. kSystem if there is none.
Result<nlohmann::json> AwaitResult(const client::Client& client, const std::string& job_id,
                                   const std::function<void(const nlohmann::json&)>& on_event);

}  // namespace caisson::cli
