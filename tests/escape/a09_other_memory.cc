// Reaching into another process without tracing it. The victim is the parent: inside that is the sandbox's PID 1, a
// fork of the supervisor with its memory; in the control it is the harness.
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// An address that is not mapped: EFAULT comes after the check of who may look.
Observation Vector(long number, const char* what) {
  char byte = 0;
  struct iovec local {
    &byte, 1
  };
  struct iovec remote {
    nullptr, 1
  };
  return FromHarmlessCall(Call(number, ::getppid(), &local, 1, &remote, 1, 0), {EFAULT}, what);
}

Observation ReadMemory() { return Vector(SYS_process_vm_readv, "process_vm_readv"); }
Observation WriteMemory() { return Vector(SYS_process_vm_writev, "process_vm_writev"); }

// The first mapped byte, by way of /proc. Opened for writing it is only opened: the control's victim is the harness.
Observation ProcMemory(int flags) {
  const std::string directory = "/proc/" + std::to_string(::getppid());
  const int fd = ::open((directory + "/mem").c_str(), flags | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  if (flags != O_RDONLY) return Escaped("opened for writing");
  unsigned long start = 0;
  const std::string maps = ReadText(directory + "/maps");
  char byte = 0;
  if (std::sscanf(maps.c_str(), "%lx-", &start) != 1) return Partial("opened, but nothing seems to be mapped");
  return ::pread(fd, &byte, 1, static_cast<off_t>(start)) == 1 ? Escaped("read memory") : Blocked(errno);
}

Observation Descriptor() {
  const long process = Call(SYS_pidfd_open, ::getppid(), 0);
  if (process < 0) return Blocked(static_cast<int>(-process), "pidfd_open");
  return FromCall(Call(SYS_pidfd_getfd, process, 2, 0), "took a descriptor");
}

Observation Compare() {
  return FromCall(Call(SYS_kcmp, ::getpid(), ::getppid(), KCMP_VM, 0, 0), "compared kernel pointers");
}

Observation Advise() {
  const long process = Call(SYS_pidfd_open, ::getppid(), 0);
  if (process < 0) return Blocked(static_cast<int>(-process), "pidfd_open");
  struct iovec nothing {};
  return FromCall(Call(SYS_process_madvise, process, &nothing, 1, MADV_COLD, 0), "advised on the parent's memory");
}

ParkedSetup Denied(const char* syscall) {
  return {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.ptrace", syscall}}};
}

const Registration kRow(Row{
    .id = "A09",
    .title = "memory of PID 1: process_vm_*, /proc/1/mem, pidfd_getfd, kcmp",
    .severity = Severity::kEscape,
    .walls = {"seccomp", "PID 1 is not dumpable"},
    .attempts = {{.name = "readv",
                  .probe = ReadMemory,
                  .control = {.reaches_kernel = true},
                  .expect = Denied("process_vm_readv")},
                 {.name = "writev",
                  .probe = WriteMemory,
                  .control = {.reaches_kernel = true},
                  .expect = Denied("process_vm_writev")},
                 {.name = "mem", .probe = [] { return ProcMemory(O_RDONLY); }, .expect = {.errnos = {EACCES, EPERM}}},
                 {.name = "mem_write",
                  .probe = [] { return ProcMemory(O_RDWR); },
                  .expect = {.errnos = {EACCES, EPERM, EROFS},
                             .reports = {{"FilesystemWriteViolation", "fs.write", "open", true},
                                         {"FilesystemWriteViolation", "fs.write", "openat", true}}}},
                 {.name = "getfd", .probe = Descriptor, .expect = Denied("pidfd_getfd")},
                 {.name = "kcmp", .probe = Compare, .expect = Denied("kcmp")},
                 {.name = "madvise", .probe = Advise, .expect = {.errnos = {EPERM, EACCES}}}},
});

}  // namespace

}  // namespace caisson::escape
