// Makes a request's source of what lies on this machine, so that it can be verified on another.
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

// A directory goes as an archive, which keeps modes and links, so that it has the digest it has here. Judged by path
// policy as `caisson verify` judges it, so that no key is sent away by mistake.
//
// kUnsupported for what no archive may hold: more than 4096 files or 32 MiB, names that are not UTF-8, links that lead
// out of the directory.
Result<PackedSource> PackSource(const std::string& path);

}  // namespace caisson::client
