// The artifact glob matcher: hostile patterns and paths must end, and a path must match itself when it has no stars.
#include <cstdlib>
#include <string>

#include "sandbox/collector.h"
#include "target.h"

CAISSON_FUZZ_TARGET(glob) {
  if (size > 4096) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const size_t split = text.find('\n');
  if (split == std::string::npos) return 0;
  const std::string path = text.substr(0, split), glob = text.substr(split + 1);
  (void)caisson::sandbox::MatchesGlob(path, glob);
  if (path.find_first_of("*?") == std::string::npos && !caisson::sandbox::MatchesGlob(path, path)) std::abort();
  if (!caisson::sandbox::MatchesGlob(path, "**")) std::abort();
  return 0;
}
