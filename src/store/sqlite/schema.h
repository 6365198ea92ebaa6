// The tables, as numbered steps. A step that was released is never changed: the next one is added.
#pragma once

#include <array>

namespace caisson::store::sqlite {

// `PRAGMA user_version` is the number of steps that a file has seen.
extern const std::array<const char*, 1> kSchemaSteps;

// "Cais": other programs' files have another one, and are refused.
inline constexpr int kApplicationId = 0x43616973;

}  // namespace caisson::store::sqlite
