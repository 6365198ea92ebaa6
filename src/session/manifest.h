// The manifest of a private copy: what each entry was when the copy was made, so that a later diff knows what the
// session itself changed.
//
// An entry counts as untouched while its inode number and ctime are those of the manifest: a program cannot set a
// ctime. The manifest lies outside the session's reach; it is parsed with bounds all the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "session/change.h"
#include "session/limits.h"

namespace caisson::session {

struct ManifestEntry {
  EntryType type = EntryType::kAbsent;
  mode_t mode = 0;
  int64_t size = 0;
  uint64_t inode = 0;
  int64_t ctime_ns = 0;  // since the epoch
};

struct Manifest {
  std::unordered_map<std::string, ManifestEntry> entries;  // by path
};

// Records the tree of `copy_fd` and returns once the file system's clock has moved on, so that every later change has
// another ctime. Nothing may write to the copy meanwhile.
Result<Manifest> RecordManifest(int copy_fd, const DiffLimits& limits = {});

// The file's text: see docs/design/formats.md.
std::string ManifestToText(const Manifest& manifest);
Result<Manifest> ParseManifest(std::string_view text, const DiffLimits& limits = {});

// RecordManifest, written to the file `name` in `directory_fd` (replaced atomically).
Status WriteManifest(int copy_fd, int directory_fd, const std::string& name, const DiffLimits& limits = {});
Result<Manifest> ReadManifest(int directory_fd, const std::string& name, const DiffLimits& limits = {});

}  // namespace caisson::session
