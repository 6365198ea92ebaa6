// caisson verify through a service, if there is one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "cli/flags.h"
#include "verify/event_log.h"

namespace caisson::cli {

struct VerifyFlags {
  SharedFlags shared;
  bool mode_given = false;
  std::string path, archives, artifacts;
  bool local = false;    // always in this process
  bool service = false;  // only at a service
};

// Where the result goes; opened before anything runs.
struct VerifyOutputs {
  verify::EventLog events;
  UniqueFd result_file;
};

// Verifies at the service that DiscoverService finds and returns the exit code. Returns nothing if this process must
// verify: there is no service, or the service does not support the request and a message named the unsupported part.
// Once the service has the request there is no fallback: a later failure is an error that names its cause.
std::optional<int> VerifyAtService(const VerifyFlags& flags, VerifyOutputs& outputs);

// Writes the result to --result and prints it as the flags demand. Returns false after an error message if it cannot be
// written.
bool DeliverResult(const nlohmann::json& document, const VerifyFlags& flags, const VerifyOutputs& outputs);

}  // namespace caisson::cli
