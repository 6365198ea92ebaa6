// Errors as the session protocol carries them.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::session {

inline constexpr std::array<const char*, 7> kErrorKindNames = {"invalid",   "denied",   "unsupported", "system",
                                                               "not_found", "conflict", "exhausted"};
inline const char* NameOf(ErrorKind kind) { return kErrorKindNames[static_cast<size_t>(kind)]; }
inline Error ErrorFrom(std::string_view kind, std::string message) {
  for (size_t i = 0; i < kErrorKindNames.size(); ++i) {
    if (kind == kErrorKindNames[i]) return {static_cast<ErrorKind>(i), 0, std::move(message)};
  }
  return {ErrorKind::kSystem, 0, std::move(message)};
}

}  // namespace caisson::session
