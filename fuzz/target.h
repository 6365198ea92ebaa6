// A fuzz target: a function of arbitrary bytes that aborts if a promise is broken.
//
//   CAISSON_FUZZ_TARGET(dns) {
//     …`bytes`, `size`…
//     return 0;
//   }
//
// Built by the preset `fuzz` it is libFuzzer's entry. Everywhere else all targets are in one program, which feeds them
// the seeds in corpus/ (corpus_test.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef CAISSON_FUZZ_REPLAY

#include <map>
#include <string>

using FuzzTarget = int (*)(const uint8_t* bytes, size_t size);
std::map<std::string, FuzzTarget>& FuzzTargets();

#define CAISSON_FUZZ_TARGET(name)                                                                       \
  static int Fuzz_##name(const uint8_t* bytes, size_t size);                                            \
  static const bool kRegistered_##name = FuzzTargets().emplace(#name, Fuzz_##name).second; /* NOLINT */ \
  static int Fuzz_##name([[maybe_unused]] const uint8_t* bytes, [[maybe_unused]] size_t size)

#else

#define CAISSON_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size)

#endif
