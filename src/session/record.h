// Lines of blank-separated fields, for the manifest and the journal. A path is written with %XX for every byte that is
// not printable ASCII, and for % and blanks, so that any name fits in one field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::session {

std::string EncodePath(std::string_view path);
// Nothing unless the field is what EncodePath writes for a path relative to a tree: not empty, no empty component, no
// "." or "..", no NUL.
std::optional<std::string> DecodePath(std::string_view field);

// Reads one line after another.
class RecordReader {
 public:
  explicit RecordReader(std::string_view text) : rest_(text) {}
  // The fields of the next line; nothing at the end. An unfinished last line is a fault.
  Result<std::optional<std::vector<std::string_view>>> Next();

 private:
  std::string_view rest_;
};

// Decimal without sign or leading zeros, within the type.
std::optional<uint64_t> ParseNumber(std::string_view field);

// Reads the whole of a regular file, at most `max_bytes`.
Result<std::string> ReadWholeFile(int directory_fd, const std::string& name, size_t max_bytes);
// Writes beside it, flushes, and renames over it: after a crash the file is the old one or the new one.
Status ReplaceFile(int directory_fd, const std::string& name, std::string_view text);

}  // namespace caisson::session
