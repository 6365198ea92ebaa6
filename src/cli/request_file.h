// Requests as the command line gives them: a file of their own, or a path to be verified.
#pragma once

#include <string>

#include "base/result.h"

namespace caisson::cli {

bool LooksLikeRequest(const std::string& path);  // *.json
bool LooksLikeArchive(const std::string& path);  // a file *.tar, *.tar.gz, *.zip …

// A request or an archive to be sent: a regular file, no larger than a request may be.
Result<std::string> ReadRequestFile(const std::string& path);

// A path that a request names, as seen from here: a relative one begins where the request lies, so that a request can
// be moved together with its source.
std::string PathBesideRequest(const std::string& request_path, const std::string& path);

}  // namespace caisson::cli
