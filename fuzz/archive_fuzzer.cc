// Any bytes may be sent as an archive. libarchive is fuzzed by its own project; this target tests our configuration of
// it and our handling of its output.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "fault.h"
#include "intake/unpack/unpack.h"
#include "target.h"

CAISSON_FUZZ_TARGET(archive) {
  static const bool prepared = bool(caisson::intake::unpack::PrepareLibrary());
  CAISSON_CHECK(prepared);
  using namespace caisson::intake;
  if (size == 0) return 0;
  Limits limits;
  limits.entries = 64;
  limits.bytes = limits.file_bytes = 1 << 20;
  limits.ratio_free = 1 << 16;
  uint64_t total = 0;
  std::set<std::string> paths;
  const caisson::Status status =
      unpack::Unpack({reinterpret_cast<const char*>(bytes), size}, ArchiveFormat::kAny, limits,
                     [&](const caisson::policy::PlannedFile& file) -> caisson::Status {
                       CAISSON_CHECK(paths.insert(file.path).second && paths.size() <= limits.entries);
                       CAISSON_CHECK(!file.path.empty() && file.path[0] != '/' && caisson::IsValidUtf8(file.path));
                       CAISSON_CHECK(("/" + file.path + "/").find("/../") == std::string::npos);
                       CAISSON_CHECK((file.mode & ~0777U) == 0);
                       total += file.bytes.size();
                       CAISSON_CHECK(total <= limits.bytes);
                       return {};
                     });
  if (!status) CAISSON_CHECK(!status.error().message.empty());
  return 0;
}
