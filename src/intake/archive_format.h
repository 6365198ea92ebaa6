// The formats an archive may have.
#pragma once

#include <optional>
#include <string_view>

namespace caisson::intake {

enum class ArchiveFormat {
  kAny,  // told from the first bytes
  kTar,  // bare, or within gzip, xz or zstd
  kZip,
};

// "tar" and "zip", as requests have them; "" or "any".
inline std::optional<ArchiveFormat> FindArchiveFormat(std::string_view name) {
  if (name == "tar") return ArchiveFormat::kTar;
  if (name == "zip") return ArchiveFormat::kZip;
  if (name.empty() || name == "any") return ArchiveFormat::kAny;
  return std::nullopt;
}

inline const char* NameOf(ArchiveFormat format) {
  return format == ArchiveFormat::kTar ? "tar" : format == ArchiveFormat::kZip ? "zip" : "any";
}

}  // namespace caisson::intake
