// Reads files that a workload left behind. They are hostile: the tree may hold links, pipes, sparse giants and
// misleading names. Called only when no process inside is alive, so nothing changes during the reading.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace caisson::sandbox {

struct CollectedFile {
  std::string path;  // `prefix` and the path below it
  std::string bytes;
};

struct CollectorLimits {
  size_t files = 1000;
  size_t entries = 100'000;  // examined
  size_t depth = 64;
  uint64_t bytes = uint64_t{64} << 20;  // read in total
};

struct Collected {
  std::vector<CollectedFile> files;
  std::vector<std::string> skipped;  // "path: reason"
};

// Collects regular files below `directory` whose path, prefixed with `prefix`, `wanted` accepts. Adds to `collected`.
void CollectFiles(int directory, const std::string& prefix, const std::function<bool(const std::string&)>& wanted,
                  const CollectorLimits& limits, Collected& collected);

// Shell-like: '*' and '?' stay within a component, "**" crosses components.
bool MatchesGlob(const std::string& path, const std::string& glob);

}  // namespace caisson::sandbox
