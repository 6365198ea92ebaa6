// Takes a snapshot of the source under test: reads it once, hashes the bytes and keeps them, so that exactly the hashed
// bytes are verified even if the originals change meanwhile. A tree too large to keep is hashed and mounted instead.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"

namespace caisson::verify {

struct SnapshotLimits {
  size_t files = 4096;
  uint64_t bytes = uint64_t{32} << 20;
};

struct Snapshot {
  bool complete = false;  // false: too large; `files` is empty
  std::vector<policy::PlannedFile> files;
  std::vector<std::string> names;  // every regular file, relative, sorted; also when not complete
  std::string digest;              // hex
};

// `source` is a judged file or directory. A file keeps its own name. Links inside are kept as links, not followed.
Result<Snapshot> TakeSnapshot(const policy::JudgedPath& source, const SnapshotLimits& limits);

// The digest of files that are already in memory.
std::string DigestOf(const std::vector<policy::PlannedFile>& files);

}  // namespace caisson::verify
