// Walls that a test build can leave out, one at a time, to show that the escape suite notices (tests/escape/mutation).
// CAISSON_MUTATE names the wall. In every other build the answer is a constant and neither the code nor the name is
// there; a test looks for both in the release program.
#pragma once

#ifdef CAISSON_MUTATIONS
#include <cstdlib>
#include <cstring>
#endif

namespace caisson::sandbox {

#ifdef CAISSON_MUTATIONS
inline bool LeftOut(const char* wall) {
  static const char* const chosen = ::getenv("CAISSON_MUTATE");
  return chosen != nullptr && ::strcmp(chosen, wall) == 0;
}
#define CAISSON_LEFT_OUT(wall) ::caisson::sandbox::LeftOut(wall)
#else
#define CAISSON_LEFT_OUT(wall) false
#endif

}  // namespace caisson::sandbox
