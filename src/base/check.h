// CHECK states a condition that holds for every input. A failure is a bug in Caisson and aborts the process.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CAISSON_CHECK(condition)                                                           \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "caisson: bug at %s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
