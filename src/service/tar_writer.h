// Writes tar files as GNU tar does: names of any length and of any bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace caisson::service {

struct TarEntry {
  enum class Type : char { kFile = '0', kLink = '2', kDirectory = '5' };
  std::string name;  // relative
  Type type = Type::kFile;
  uint32_t mode = 0644;
  int64_t size = 0;  // of a file
  int64_t modified_s = 0;
  std::string link_target;
};

inline constexpr int64_t kTarBlock = 512;

// Everything in front of the file's bytes.
std::string TarHead(const TarEntry& entry);
// How many zero bytes follow a file of this size.
constexpr int64_t TarPadding(int64_t size) { return (kTarBlock - size % kTarBlock) % kTarBlock; }
// Follows the last entry.
inline std::string TarEnd() { return std::string(2 * kTarBlock, '\0'); }

}  // namespace caisson::service
