// Quantities as people write and read them. Parsing is strict: the whole text must be the quantity, without sign or
// blanks; what does not fit in an int64_t is refused. Zero is returned as 0: the caller knows whether it makes sense.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson {

// Bytes: "512M", "1G", "64KiB", "1.5g", "1048576". K, M, G and T are powers of 1024 with or without "B" or "iB", in
// either case, as container tools have it. A fraction of a byte is rounded down; a fraction without a unit is refused.
Result<int64_t> ParseSize(std::string_view text);

// Milliseconds: "30s", "500ms", "2m", "1h", "1.5s"; a bare number is seconds. Finer than a millisecond is refused.
Result<int64_t> ParseDuration(std::string_view text);

// Thousandths of a CPU: "2", "1.5", ".5", "500m". Finer than a thousandth is refused.
Result<int64_t> ParseCpus(std::string_view text);

// A plain decimal number.
Result<int64_t> ParseCount(std::string_view text);

// "0 B", "640 KiB", "1.5 GiB": at most one decimal, rounded.
std::string FormatSize(int64_t bytes);

// "320 ms", "45 s", "1.5 s", "2 min 5 s", "1 h 30 min": never more than has passed.
std::string FormatDuration(int64_t milliseconds);

}  // namespace caisson
