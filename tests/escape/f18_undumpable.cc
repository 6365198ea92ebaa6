// A process that makes itself undumpable closes its mappings and descriptors to a supervisor of the same user. In
// Python, because a forked interpreter (start: zygote) is closed more tightly than an executed program.
//
// SAFETY: 160 MiB against a limit of 64 MiB, given back at the end.
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kUndumpable[] = R"(
import ctypes, mmap, os, time
if ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0) != 0:
    not_applicable('PR_SET_DUMPABLE is refused')
)";

// Held long enough to be sampled.
constexpr char kTouch[] = R"(
held = bytearray(160 << 20)
time.sleep(1)
escaped('160 MiB that nobody may look at')
)";

constexpr char kMemoryFile[] = R"(
fd = os.memfd_create('held')
for _ in range(160):
    os.write(fd, b'x' * (1 << 20))
time.sleep(1)
escaped('160 MiB in a memory file of a process that nobody may look at')
)";

const ParkedSetup kKilled = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}};
const std::vector<std::string> kFlags = {"--memory", "64M"};

const Registration kRow(Row{
    .id = "F18",
    .title = "memory of a process that made itself undumpable",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit"},
    .attempts =
        {{.name = "touch", .python = std::string(kUndumpable) + kTouch, .expect = kKilled, .flags = kFlags},
         {.name = "memory_file", .python = std::string(kUndumpable) + kMemoryFile, .expect = kKilled, .flags = kFlags}},
});

}  // namespace

}  // namespace caisson::escape
