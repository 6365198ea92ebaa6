// Facts about the kernel and the machine in /proc: addresses to jump to, keys of other users, the host's devices.
//
// SAFETY: reading kmsg takes messages away from their reader, so it is only opened.
#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

// Reads only the first bytes: a masked file is empty. Addresses are zero for unprivileged readers.
constexpr char kReadable[] = R"(
def read(path):
    try:
        with open(path, 'rb') as file: return file.read(65536)
    except OSError: return b''
found = [path for path in ('/proc/keys', '/proc/key-users', '/proc/interrupts', '/proc/iomem', '/proc/modules',
                           '/proc/sched_debug', '/proc/timer_list', '/proc/slabinfo', '/proc/vmallocinfo',
                           '/proc/pagetypeinfo', '/proc/kpageflags', '/proc/kpagecgroup') if read(path)]
symbols = read('/proc/kallsyms').splitlines()
if any(line.split()[0].strip(b'0') for line in symbols): found.append('addresses of the kernel')
for path in ('/proc/acpi', '/proc/scsi', '/proc/bus', '/proc/fs', '/proc/irq', '/proc/driver', '/proc/asound'):
    try:
        if os.listdir(path): found.append(path)
    except OSError: pass
if found: escaped(' '.join(found))
blocked(errno.ENOENT, 'nothing readable')
)";

constexpr char kOpenable[] = R"(
found = []
for path in ('/proc/kcore', '/proc/kmsg', '/proc/kpagecount', '/dev/mem', '/dev/kmem', '/dev/port', '/dev/kmsg',
             '/dev/vda', '/dev/sda', '/dev/zram0', '/dev/cpu/0/msr', '/dev/vcs', '/dev/tty1', '/dev/hwrng'):
    try: fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError: continue
    if os.fstat(fd).st_rdev != os.stat('/dev/null').st_rdev: found.append(path)
    os.close(fd)
if found: escaped(' '.join(found))
blocked(errno.ENOENT, 'nothing can be opened')
)";

const Registration kRow(Row{
    .id = "C06",
    .title = "reading the kernel: kcore, kallsyms, keys, interrupts, /dev/mem, /dev/kmsg",
    .severity = Severity::kHostLeak,
    .walls = {"masked /proc", "own /dev", "user namespace"},
    .attempts =
        {
            {.name = "read", .python = kReadable, .expect = {.errnos = {ENOENT}}},
            {.name = "open", .python = kOpenable, .expect = {.errnos = {ENOENT}}},
        },
});

}  // namespace

}  // namespace caisson::escape
