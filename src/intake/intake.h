// Unpacks an untrusted archive, so that its files can be verified like a directory.
//
//   CAISSON_TRY(Archive archive, Archive::Take(fd, expected_sha256));
//   CAISSON_TRY(std::vector<policy::PlannedFile> files, Unpack(archive, ArchiveFormat::kAny, Limits{}));
//
// SECURITY: a separate helper, caisson-intake, parses the archive. It is installed beside our program, gets only the
// archive and a pipe (no environment), and confines itself before it reads. Its output is untrusted: the frames are
// checked, and then every rule and bound of tree_rules.h again.
//
// Any thread may call these; nothing is shared. A call takes at most kUnpackSeconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "intake/archive_format.h"
#include "intake/tree_rules.h"
#include "policy/plan.h"

namespace caisson::intake {

inline constexpr uint64_t kMaxArchiveBytes = uint64_t{64} << 20;
inline constexpr int64_t kUnpackSeconds = 60;

// The bytes of an archive, hashed while they were copied and sealed since, so that the hashed bytes are the unpacked
// ones.
class Archive {
 public:
  // Reads a regular file from its beginning. `expected_sha256`, hex in lower case, must be its hash, unless empty.
  // Errors: kInvalid (the file), kSystem (us).
  static Result<Archive> Take(int fd, std::string_view expected_sha256 = {});

  int fd() const { return fd_.get(); }
  uint64_t bytes() const { return bytes_; }
  const std::string& sha256() const { return sha256_; }

 private:
  UniqueFd fd_;
  uint64_t bytes_ = 0;
  std::string sha256_;
};

// The tree in the archive, sorted by path, with every directory in it. Errors: kInvalid (the archive; the entry is
// named), kUnsupported (the helper is not installed), kSystem.
Result<std::vector<policy::PlannedFile>> Unpack(const Archive& archive, ArchiveFormat format, const Limits& limits);

}  // namespace caisson::intake
