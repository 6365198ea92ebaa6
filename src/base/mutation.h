// Walls that a test build can leave out, one at a time, to show that the escape suite notices (tests/escape/mutation).
// CAISSON_MUTATE names the wall, or several separated by commas where one wall stands behind another. In every other
// build the answer is a constant, and the program contains neither the code nor the name; a test looks for both in the
// release program.
#pragma once

#ifdef CAISSON_MUTATIONS
#include <cstdlib>
#include <cstring>
#endif

namespace caisson {

#ifdef CAISSON_MUTATIONS
inline bool LeftOut(const char* wall) {
  static const char* const chosen = ::getenv("CAISSON_MUTATE");
  const size_t length = ::strlen(wall);
  for (const char* at = chosen; at != nullptr; at = ::strchr(at, ',')) {
    if (*at == ',') ++at;
    if (::strncmp(at, wall, length) == 0 && (at[length] == '\0' || at[length] == ',')) return true;
  }
  return false;
}
#define CAISSON_LEFT_OUT(wall) ::caisson::LeftOut(wall)
#else
#define CAISSON_LEFT_OUT(wall) false
#endif

}  // namespace caisson
