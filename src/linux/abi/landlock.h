// Landlock's ABI up to version 7. Distribution headers stop at version 2, so the numbers are kept here, with the sizes
// the kernel expects asserted.
#pragma once

#include <cstdint>

namespace caisson::linux_abi {

struct LandlockRulesetAttr {
  uint64_t handled_access_fs;
  uint64_t handled_access_net;  // ABI 4
  uint64_t scoped;              // ABI 6
};
static_assert(sizeof(LandlockRulesetAttr) == 24);

struct [[gnu::packed]] LandlockPathBeneathAttr {
  uint64_t allowed_access;
  int32_t parent_fd;
};
static_assert(sizeof(LandlockPathBeneathAttr) == 12);

inline constexpr uint32_t kLandlockCreateRulesetVersion = 1;
inline constexpr int kLandlockRulePathBeneath = 1;

inline constexpr uint64_t kLandlockFsExecute = 1ULL << 0;
inline constexpr uint64_t kLandlockFsWriteFile = 1ULL << 1;
inline constexpr uint64_t kLandlockFsReadFile = 1ULL << 2;
inline constexpr uint64_t kLandlockFsReadDir = 1ULL << 3;
inline constexpr uint64_t kLandlockFsMakeChar = 1ULL << 6;
inline constexpr uint64_t kLandlockFsMakeBlock = 1ULL << 11;
inline constexpr uint64_t kLandlockFsRefer = 1ULL << 13;     // ABI 2
inline constexpr uint64_t kLandlockFsTruncate = 1ULL << 14;  // ABI 3
inline constexpr uint64_t kLandlockFsIoctlDev = 1ULL << 15;  // ABI 5

inline constexpr uint64_t kLandlockScopeAbstractUnixSocket = 1ULL << 0;  // ABI 6
inline constexpr uint64_t kLandlockScopeSignal = 1ULL << 1;              // ABI 6

// Every file-system right an ABI version knows.
inline constexpr uint64_t LandlockAllFsRights(int abi) {
  uint64_t rights = (1ULL << 13) - 1;
  if (abi >= 2) rights |= kLandlockFsRefer;
  if (abi >= 3) rights |= kLandlockFsTruncate;
  if (abi >= 5) rights |= kLandlockFsIoctlDev;
  return rights;
}

}  // namespace caisson::linux_abi
