// The manifest of a session's copy. An accepted one is within the limits, names only paths inside the tree, and is
// written as it was read, but for the order of its lines.
#include <string>
#include <string_view>

#include "base/check.h"
#include "fault.h"
#include "session/manifest.h"
#include "session/record.h"
#include "target.h"

CAISSON_FUZZ_TARGET(session_manifest) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  caisson::session::DiffLimits limits;
  limits.entries = 100;
  limits.path_bytes = 200;
  const auto manifest = caisson::session::ParseManifest(text, limits);
  if (!manifest) {
    CheckFault(manifest.error());
    return 0;
  }
  CAISSON_CHECK(manifest->entries.size() <= 100);
  for (const auto& [path, entry] : manifest->entries) {
    CAISSON_CHECK(path.size() <= 200 && entry.mode <= 07777 && entry.size >= 0 && entry.ctime_ns >= 0);
    CAISSON_CHECK(entry.type != caisson::session::EntryType::kAbsent);
    CAISSON_CHECK(caisson::session::DecodePath(caisson::session::EncodePath(path)) == path);
  }
  const std::string written = caisson::session::ManifestToText(*manifest);
  CAISSON_CHECK(written.size() == text.size());
  const auto again = caisson::session::ParseManifest(written, limits);
  CAISSON_CHECK(again && caisson::session::ManifestToText(*again) == written);
  return 0;
}
