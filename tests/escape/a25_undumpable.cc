// A process that makes itself undumpable, so that a supervisor of the same user may not read its arguments, and then
// writes and connects. In Python, because a forked interpreter (start: zygote) has memory that belongs to the host's
// user namespace.
#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kUndumpable[] = R"(
if ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0) != 0:
    not_applicable('PR_SET_DUMPABLE is refused')
)";

constexpr char kWrite[] = R"(
path = '/usr/caisson-selftest' if os.path.isdir('/scratch') else os.path.join(os.environ.get('TMPDIR', '/tmp'), 'caisson-a25')
try:
    os.mkdir(path)
except OSError as error:
    blocked(error)
os.rmdir(path)
escaped('made a directory')
)";

constexpr char kConnect[] = R"(
inside = os.path.isdir('/scratch')
peer = socket.socket(type=socket.SOCK_DGRAM)
try:
    peer.connect(('192.0.2.1', 9) if inside else ('127.0.0.1', 9))
except OSError as error:
    blocked(error)
escaped('connected')
)";

const Registration kRow(Row{
    .id = "A25",
    .title = "calls of a process that made itself undumpable",
    .severity = Severity::kIntegrity,
    .walls = {"observer"},
    .attempts = {{.name = "write",
                  .python = std::string(kUndumpable) + kWrite,
                  .expect = {.errnos = {EROFS}, .reports = {{"FilesystemWriteViolation", "fs.write", "mkdir"}}}},
                 {.name = "connect",
                  .python = std::string(kUndumpable) + kConnect,
                  .expect = {.errnos = {ENETUNREACH},
                             .reports = {{"NetworkAccessViolation", "net.connect", "connect"}}}}},
});

}  // namespace

}  // namespace caisson::escape
