// The limits of one request. Defaults are those of the `balanced` mode.
#pragma once

#include <cstdint>

namespace caisson::policy {

struct Limits {
  int64_t command_timeout_ms = 45'000;
  int64_t budget_ms = 180'000;
  int64_t cpu_millis = 2'000;  // thousandths of a CPU
  int64_t memory_bytes = int64_t{1024} << 20;
  int64_t processes = 256;  // threads count
  int64_t output_bytes = int64_t{10} << 20;
  int64_t scratch_bytes = int64_t{512} << 20;
  int64_t scratch_inodes = 65'536;
};

}  // namespace caisson::policy
