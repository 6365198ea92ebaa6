// The 32-bit entry: int 0x80 has its own call numbers, which bypass a filter that compares only numbers.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kExecve32 = 11, kGetpid32 = 20, kAccess32 = 33;

long Interrupt(long number, long a = 0, long b = 0, long c = 0) {
  long result;
  // The entry clears r8 to r11.
  asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
  return static_cast<int>(result);
}

// Arguments must lie in the lower 4 GiB.
void* LowPage() {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  return page == MAP_FAILED ? nullptr : page;
}

Observation Getpid() {
  return Interrupt(kGetpid32) == ::getpid() ? Escaped("getpid by int 0x80") : Blocked(0, "no answer");
}

Observation Access() {
  void* page = LowPage();
  if (page == nullptr) return NotApplicable("no memory below 4 GiB");
  ::strcpy(static_cast<char*>(page), "/proc/self/status");
  const long result = Interrupt(kAccess32, reinterpret_cast<long>(page), R_OK);
  return FromCall(result, "access by int 0x80");
}

Observation Execve() {
  void* page = LowPage();
  if (page == nullptr) return NotApplicable("no memory below 4 GiB");
  ::strcpy(static_cast<char*>(page), "/bin/true");
  const Ended ended = InChild([&] {
    Interrupt(kExecve32, reinterpret_cast<long>(page), 0, 0);
    return 99;
  });
  return ended.exited && ended.code == 0 ? Escaped("execve by int 0x80") : Blocked(0, "not executed");
}

// mov eax, 1; mov ebx, 42; int 0x80, in the smallest executable the kernel takes.
Observation Elf32() {
  constexpr unsigned char kProgram[] = {
      0x7f, 'E', 'L', 'F', 1,    1,    1,  0, 0,    0,    0,    0,    0,    0,    0,    0,  // ELFCLASS32
      2,    0,   3,   0,   1,    0,    0,  0, 0x54, 0x80, 0x04, 0x08,                       // EXEC, 386, entry
      52,   0,   0,   0,   0,    0,    0,  0, 0,    0,    0,    0,    52,   0,    32,   0,
      1,    0,   0,   0,   0,    0,    0,  0,                                                  // one segment
      1,    0,   0,   0,   0,    0,    0,  0, 0x00, 0x80, 0x04, 0x08, 0x00, 0x80, 0x04, 0x08,  // LOAD
      0x60, 0,   0,   0,   0x60, 0,    0,  0, 5,    0,    0,    0,    0,    0x10, 0,    0,     // R X
      0xb8, 1,   0,   0,   0,    0xbb, 42, 0, 0,    0,    0xcd, 0x80};
  const std::string path = WritableDirectory() + "/elf32";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
  if (fd < 0 || ::write(fd, kProgram, sizeof(kProgram)) != static_cast<ssize_t>(sizeof(kProgram)))
    return NotApplicable("cannot write " + path);
  ::close(fd);
  const Ended ended = InChild([&] {
    ::execl(path.c_str(), "elf32", nullptr);
    return errno;
  });
  return ended.exited && ended.code == 42 ? Escaped("a 32-bit program ran")
                                          : Blocked(ended.code, "signal " + std::to_string(ended.signal));
}

const ParkedSetup kKilled = {.death = Death::kRequired, .reports = {{"SyscallViolation", "syscall.arch"}}};

const Registration kRow(Row{
    .id = "A01",
    .title = "i386 system calls by int 0x80, and a 32-bit program",
    .severity = Severity::kEscape,
    .walls = {"seccomp: foreign architecture"},
    .attempts = {{.name = "getpid", .probe = Getpid, .expect = kKilled},
                 {.name = "access", .probe = Access, .expect = kKilled},
                 {.name = "execve", .probe = Execve, .expect = kKilled},
                 {.name = "elf32", .probe = Elf32, .expect = kKilled}},
});

}  // namespace

}  // namespace caisson::escape
