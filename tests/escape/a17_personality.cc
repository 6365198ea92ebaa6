// Personalities that make an address space easier to attack: everything readable executable, a page at address 0, no
// randomness, the old layout. They survive exec.
#include <sys/personality.h>
#include <sys/syscall.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr unsigned kQuery = 0xffffffff;

Observation Become(unsigned wanted) {
  const long result = Call(SYS_personality, wanted);
  const unsigned now = static_cast<unsigned>(Call(SYS_personality, kQuery));
  if (now == wanted) return Escaped("");
  return result < 0 ? Blocked(static_cast<int>(-result)) : Partial("answered, without effect");
}

Observation All() {
  Tally tally;
  tally.Add("READ_IMPLIES_EXEC", Become(READ_IMPLIES_EXEC));
  tally.Add("ADDR_COMPAT_LAYOUT", Become(ADDR_COMPAT_LAYOUT));
  tally.Add("MMAP_PAGE_ZERO", Become(MMAP_PAGE_ZERO));
  tally.Add("PER_LINUX32", Become(PER_LINUX32));
  tally.Add("UNAME26", Become(UNAME26));
  tally.Add("with ADDR_NO_RANDOMIZE", Become(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC));
  return tally.Sum();
}

const Registration kRow(Row{
    .id = "A17",
    .title = "personalities that weaken the address space",
    .severity = Severity::kEscape,
    .walls = {"seccomp"},
    .attempts = {{.probe = All, .expect = {.errnos = {EPERM}}}},
});

}  // namespace

}  // namespace caisson::escape
