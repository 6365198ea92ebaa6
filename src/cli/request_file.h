// Requests from the command line: a request file, or a path to be verified.
#pragma once

#include <string>

#include "base/result.h"

namespace caisson::cli {

bool LooksLikeRequest(const std::string& path);  // *.json
bool LooksLikeArchive(const std::string& path);  // a file *.tar, *.tar.gz, *.zip …

// A request or an archive to be sent: a regular file, no larger than a request may be.
Result<std::string> ReadRequestFile(const std::string& path);

// Resolves a path of a request file: a relative path begins at the request's directory, so that a request can be moved
// together with its source.
std::string PathBesideRequest(const std::string& request_path, const std::string& path);

}  // namespace caisson::cli
