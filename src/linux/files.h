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

// Opens or creates the output file that a caller named. A symbolic link in its place is an error, because a workload
// that can write to the directory could redirect the output; /dev/stdout and the like are followed.
Result<UniqueFd> OpenOutput(const std::string& path, int flags);

// Reads at most `limit` bytes; for files whose size the kernel makes up.
Result<std::string> ReadSmallFile(int dir_fd, const char* path, size_t limit = 65536);
Status WriteSmallFile(int dir_fd, const char* path, std::string_view text);

// A document that a caller named: the whole of a regular file, which may have up to `max_bytes`. Errors are the
// caller's mistake and begin with the path.
Result<std::string> ReadDocument(const std::string& path, size_t max_bytes);

// A nameless file in `directory` that vanishes with its descriptor; a file in memory if `directory` is empty.
Result<UniqueFd> OpenUnnamed(const std::string& directory);
Status WriteAll(int fd, std::string_view bytes);
// Reads exactly that many bytes; fewer are an error.
Result<std::string> ReadAt(int fd, int64_t offset, int64_t bytes);

// Bytes that the kernel could hand out without swapping. An error if the kernel does not report it: no caller may treat
// a missing number as free memory.
Result<int64_t> AvailableMemory();

// The number after `key` in "key value" lines, or in a file that is one number when `key` is empty; -1 when absent.
int64_t FindNumber(std::string_view text, std::string_view key);

}  // namespace caisson::linux_sys
