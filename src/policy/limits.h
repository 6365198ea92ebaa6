// The limits of one request. Their defaults are in profiles/balanced.yaml.
#pragma once

#include <array>
#include <cstdint>

namespace caisson::policy {

struct Limits {
  int64_t command_timeout_ms = 0;
  int64_t budget_ms = 0;
  int64_t cpu_millis = 0;  // thousandths of a CPU
  int64_t memory_bytes = 0;
  int64_t processes = 0;  // threads count
  int64_t output_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t scratch_inodes = 0;
  int64_t cpu_time_ms = 0;  // of one check; kNoLimit unless a profile, a request or a flag sets it
  int64_t stack_bytes = 0;
};

// The value of an optional limit that is not set.
inline constexpr int64_t kNoLimit = 0;

enum class LimitUnit { kMilliseconds, kMilliCpus, kBytes, kCount };

// One limit as documents spell it. All code that treats limits alike uses this table.
struct LimitField {
  const char* name;
  int64_t Limits::*value;
  LimitUnit unit;
  int64_t least;
  int64_t most;
  bool optional = false;  // may be kNoLimit, and is then left out of documents
};

// Whether `value` lets a workload have more than `before` does.
constexpr bool IsWider(int64_t value, int64_t before) {
  return before != kNoLimit && (value == kNoLimit || value > before);
}

// Ceilings far above any use, so that sums and conversions to nanoseconds cannot overflow later.
inline constexpr int64_t kMaxTimeoutMs = int64_t{366} * 24 * 3600 * 1000;
inline constexpr int64_t kMaxLimitBytes = int64_t{1} << 50;
inline constexpr int64_t kMaxProcesses = int64_t{1} << 22;  // the kernel's own PID_MAX_LIMIT
inline constexpr int64_t kMaxCpus = 65'536;
inline constexpr int64_t kMinMemoryBytes = int64_t{4} << 20;
inline constexpr int64_t kMinStackBytes = int64_t{64} << 10;

inline constexpr std::array<LimitField, 10> kLimitFields = {{
    {"command_timeout_ms", &Limits::command_timeout_ms, LimitUnit::kMilliseconds, 1, kMaxTimeoutMs},
    {"budget_ms", &Limits::budget_ms, LimitUnit::kMilliseconds, 1, kMaxTimeoutMs},
    {"cpu", &Limits::cpu_millis, LimitUnit::kMilliCpus, 10, kMaxCpus * 1000},
    {"memory_bytes", &Limits::memory_bytes, LimitUnit::kBytes, kMinMemoryBytes, kMaxLimitBytes},
    {"processes", &Limits::processes, LimitUnit::kCount, 1, kMaxProcesses},
    {"output_bytes", &Limits::output_bytes, LimitUnit::kBytes, 1, kMaxLimitBytes},
    {"scratch_bytes", &Limits::scratch_bytes, LimitUnit::kBytes, 4096, kMaxLimitBytes},
    {"scratch_inodes", &Limits::scratch_inodes, LimitUnit::kCount, 16, int64_t{1} << 32},
    {"cpu_time_ms", &Limits::cpu_time_ms, LimitUnit::kMilliseconds, 1, kMaxTimeoutMs, true},
    {"stack_bytes", &Limits::stack_bytes, LimitUnit::kBytes, kMinStackBytes, kMaxLimitBytes},
}};

}  // namespace caisson::policy
