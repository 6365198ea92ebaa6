// A request on its way to a service, and the job that becomes of it: what submit and verify share.
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

// What the command line calls PATH: a file, a directory, an archive, or a request with its source.path. All that lies
// on this machine is packed. kUnsupported when it cannot be (client::PackSource).
Result<Shipment> PackShipment(const std::string& path);

// Without an idempotency key of the caller's own the request gets one: a lost answer must not make a second job of a
// second try.
void EnsureKey(nlohmann::json& request);

// Sends it until it is taken or refused for good; gives the job. A service that restarts or is full is given half a
// minute.
Result<nlohmann::json> SendShipment(const client::Client& client, const Shipment& shipment);

// Follows the job to its end and gives its result. kSystem when it came to none.
Result<nlohmann::json> AwaitResult(const client::Client& client, const std::string& job_id,
                                   const std::function<void(const nlohmann::json&)>& on_event);

}  // namespace caisson::cli
