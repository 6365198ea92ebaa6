// CHECK states what must be true whatever the input; a failure is a bug of ours and aborts.
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
