// Packs files of this machine as a request's source, so that another machine can verify them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace caisson::client {

// NOLINTNEXTLINE(bugprone-exception-escape): moving a json value is noexcept, whatever it is made of.
struct PackedSource {
  nlohmann::json source;  // {"files": {…}} for a file, {"archive": "sha256:…"} for a directory
  std::string archive;    // the archive it names, to be sent first
};

// A directory goes as an archive, which keeps modes and links, so that its digest is the same on both machines. Path
// policy judges it as in `caisson verify`, so that no key is sent by mistake.
//
// kUnsupported for what no archive may hold: more than 4096 files or 32 MiB, names that are not UTF-8, links that lead
// out of the directory.
Result<PackedSource> PackSource(const std::string& path);

}  // namespace caisson::client
