// System calls whose harmless form is a notice, in the forms that are not harmless: moving pages, reaching another
// process, holding up the opens of other programs.
#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kPreferred = 1, kMove = 2;  // MPOL_PREFERRED, MPOL_MF_MOVE

alignas(4096) char page[4096];

Observation MovePages(uint64_t flags) {
  page[0] = 1;
  const unsigned long nodes = 1;
  return FromCall(Call(SYS_mbind, page, sizeof(page), kPreferred, &nodes, 64, flags), "moves pages");
}

Observation Move() { return MovePages(kMove); }

// The kernel reads 32 bits of the flags.
Observation MoveWithHighBits() { return MovePages(uint64_t{0x7f00} << 32 | kMove); }

Observation MoveList() {
  void* pages[] = {page};
  int node = 0, status = 0;
  page[0] = 1;
  return FromCall(Call(SYS_move_pages, 0, 1, pages, &node, &status, kMove), "moves pages");
}

Observation Migrate() {
  const unsigned long nodes = 1;
  return FromCall(Call(SYS_migrate_pages, ::getpid(), 64, &nodes, &nodes), "moves all pages of a process");
}

Observation HoldUp() {
  const long fd = Call(SYS_fanotify_init, FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY);
  if (fd >= 0) ::close(static_cast<int>(fd));
  // The kernel's answer to an unprivileged user, whom both refuse.
  return IsControl() && fd == -EPERM ? Escaped("the kernel decides") : FromCall(fd, "decides about opens");
}

ParkedSetup Denied(const char* syscall) {
  return {.errnos = {EPERM}, .reports = {{"SyscallViolation", "syscall.kernel", syscall}}};
}

const Registration kRow(Row{
    .id = "J08",
    .title = "harmful forms of calls whose harmless form is only noticed",
    .severity = Severity::kIntegrity,
    .walls = {"seccomp"},
    .attempts = {{.name = "mbind", .probe = Move, .expect = Denied("mbind")},
                 {.name = "high_bits", .probe = MoveWithHighBits, .expect = Denied("mbind")},
                 {.name = "move_pages", .probe = MoveList, .expect = Denied("move_pages")},
                 {.name = "migrate_pages", .probe = Migrate, .expect = Denied("migrate_pages")},
                 {.name = "fanotify", .probe = HoldUp, .expect = Denied("fanotify_init")}},
});

}  // namespace

}  // namespace caisson::escape
