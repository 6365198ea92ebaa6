// caisson verify by way of a service, where there is one.
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
  bool local = false;    // in this process, whatever there is
  bool service = false;  // at a service, or not at all
};

// Where the result goes; opened before anything runs.
struct VerifyOutputs {
  verify::EventLog events;
  UniqueFd result_file;
};

// Verifies at the service that DiscoverService finds and returns the exit code. Nothing when it is to be done in this
// process: there is no service, or it cannot do what is asked and the user was told which part of it. Once the service
// has been given the request, there is no way back: what goes wrong then is an error that names it.
std::optional<int> VerifyAtService(const VerifyFlags& flags, VerifyOutputs& outputs);

// Writes the result to --result and prints it as the flags want it. False, with a complaint, when it cannot be written.
bool DeliverResult(const nlohmann::json& document, const VerifyFlags& flags, const VerifyOutputs& outputs);

}  // namespace caisson::cli
