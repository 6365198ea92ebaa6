// The memory from which the kernel reads a process's command line for /proc/PID/cmdline, which every user can read. The
// process may overwrite it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>

namespace caisson::linux_sys {

// Of this process; empty, with errno set, if the kernel does not report it. Allocates nothing and is safe after clone.
inline std::span<char> ShownArguments() {
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[2048];
  const ssize_t size = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  errno = EIO;
  if (size <= 0) return {};
  text[size] = '\0';
  // Fields are counted after the program's name, which may hold any character.
  constexpr int kState = 3, kArgumentsStart = 48;
  const char* field = ::strrchr(text, ')');
  for (int number = kState - 1; field != nullptr && number < kArgumentsStart; ++number) {
    field = ::strchr(field + 1, ' ');
  }
  if (field == nullptr) return {};
  char* rest = nullptr;
  const unsigned long start = ::strtoul(field, &rest, 10);
  const unsigned long end = ::strtoul(rest, nullptr, 10);
  if (start == 0 || end <= start) return {};
  return {reinterpret_cast<char*>(start), end - start};  // NOLINT(performance-no-int-to-ptr): as the kernel names it
}

}  // namespace caisson::linux_sys
