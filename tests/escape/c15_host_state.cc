// The state of the host in /proc: locks and their holders, boot parameters, boot time and load.
#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kReadable[] = R"(
import fcntl, tempfile
# So that there is one to be seen.
lock = tempfile.TemporaryFile()
fcntl.flock(lock, fcntl.LOCK_EX)
def read(path):
    try:
        with open(path, 'rb') as file: return file.read(65536)
    except OSError: return b''
paths = ['/proc/locks', '/proc/cmdline', '/proc/cgroups', '/proc/diskstats', '/proc/partitions', '/proc/softirqs',
         '/proc/sys/kernel/random/boot_id']
found = [path for path in paths if read(path)]
try:
    if os.listdir('/proc/pressure'): found.append('/proc/pressure')
except OSError: pass
if not found: blocked(errno.ENOENT, 'nothing readable')
escaped(' '.join(found))
)";

const Registration kRow(Row{
    .id = "C15",
    .title = "the host's state in /proc: locks, command line, boot id, cgroups, pressure, disks",
    .severity = Severity::kHostLeak,
    .walls = {"masked /proc"},
    .attempts =
        {
            {.python = kReadable, .expect = {.errnos = {ENOENT}}},
        },
});

}  // namespace

}  // namespace caisson::escape
