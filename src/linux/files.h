// Reading and writing files: the small ones through which the kernel is configured, and those a caller names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::linux_sys {

// Opens with O_CLOEXEC; the error names the path.
Result<UniqueFd> Open(const std::string& path, int flags);
Result<UniqueFd> OpenAt(int dir_fd, const char* path, int flags);

// Opens the file a caller named for our output, and makes it if there is none. A link in its place is an error, because
// a workload that could write to that directory would choose where we write; /dev/stdout and the like are followed.
Result<UniqueFd> OpenOutput(const std::string& path, int flags);

// Reads at most `limit` bytes; for files whose size the kernel makes up.
Result<std::string> ReadSmallFile(int dir_fd, const char* path, size_t limit = 65536);
Status WriteSmallFile(int dir_fd, const char* path, std::string_view text);

// A document that a caller named: the whole of a regular file, which may have up to `max_bytes`. Errors are the
// caller's mistake and begin with the path.
Result<std::string> ReadDocument(const std::string& path, size_t max_bytes);

// The number after `key` in "key value" lines, or in a file that is one number when `key` is empty; -1 when absent.
int64_t FindNumber(std::string_view text, std::string_view key);

}  // namespace caisson::linux_sys
