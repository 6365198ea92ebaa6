// Makes a request of what lies on this machine, so that it can be verified on another.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace caisson::client {

// The `source` of a request that holds the file or the directory itself: {"files": {…}}. Judged by path policy as
// `caisson verify` judges it, so that no key is sent away by mistake. Links cannot be sent; neither can more than a
// request may hold.
Result<nlohmann::json> PackSource(const std::string& path);

}  // namespace caisson::client
