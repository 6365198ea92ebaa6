// Brings an image into a store: from a directory, a tar file, an OCI or Docker archive or layout, or with skopeo from a
// registry or an engine.
#pragma once

#include <string>

#include "base/result.h"
#include "image/store.h"
#include "intake/tree_rules.h"

namespace caisson::image {

inline constexpr intake::Limits kDefaultLimits{.entries = 250'000,
                                               .bytes = uint64_t{16} << 30,
                                               .file_bytes = uint64_t{8} << 30,
                                               .path_bytes = 4096,
                                               .depth = 128,
                                               .ratio = 200,
                                               .ratio_free = uint64_t{256} << 20};

// `source` is a path, "docker://…" or "docker-daemon:…". The first bytes and entries decide what a path is: a directory
// or tar file with `oci-layout` is an OCI layout, one with `manifest.json` and no `usr`, `bin` or `etc` is Docker's,
// and anything else is the root file system itself. Errors: kInvalid (the source), kUnsupported (skopeo or the helper
// is not installed), kSystem.
Result<Record> Import(const Store& store, const std::string& name, const std::string& source,
                      const intake::Limits& limits);

}  // namespace caisson::image
