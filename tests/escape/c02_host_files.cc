// Host files that can be found in the tree.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

Observation Read() {
  const int fd = ::open(Canary("FILE").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Blocked(errno);
  ::close(fd);
  return Escaped("opened");
}

// By its name and by what is beside it: the harness's directory holds results of other sandboxes.
Observation Enumerate() {
  const std::string file = Canary("FILE");
  const std::string directory = file.substr(0, file.rfind('/'));
  return ::access(directory.c_str(), F_OK) == 0 ? Escaped("the harness's directory is there") : Blocked(errno);
}

constexpr char kPlaces[] = R"(
home = os.path.expanduser('~')
places = ['/root', '/home', '/boot', '/srv', '/mnt', '/media', '/opt', '/sys', '/lost+found', '/var/lib', '/var/log',
          '/var/spool', '/etc/shadow', '/etc/sudoers', '/etc/ssh', '/etc/ssl/private', '/etc/machine-id',
          '/var/lib/dbus/machine-id', '/etc/fstab', '/etc/environment', '/etc/default', '/etc/systemd',
          '/run/caisson', '/run/docker.sock', '/run/systemd', '/run/user', '/run/lock', '/tmp/caisson-65534',
          home + '/.ssh', home + '/.docker', home + '/.aws', home + '/.config', home + '/.gnupg', home + '/.netrc',
          '/.dockerenv', '/proc/1/root/root', '/oldroot', '/old_root', '/.pivot_root', '/.cover']
found = [place for place in places if os.path.lexists(place)]
if found: escaped(' '.join(found))
blocked(errno.ENOENT, f'none of {len(places)}')
)";

// Every name that is not ours. What Caisson shows of /usr is the host's and has no secrets; it is not walked.
constexpr char kWalk[] = R"(
known = {'/': 'bin dev etc lib lib32 lib64 libx32 proc run sbin scratch tmp usr var workspace',
         '/etc': 'alternatives group hostname hosts java-17-openjdk ld.so.cache nsswitch.conf passwd resolv.conf',
         '/dev': 'fd full null ptmx pts random shm stderr stdin stdout tty urandom zero',
         '/var': 'cache tmp', '/var/cache': '', '/run': '', '/tmp': '', '/dev/shm': '', '/scratch': '', '/workspace': 'caisson-selftest'}
found = [f'{top.rstrip("/")}/{name}' for top, names in known.items() if os.path.isdir(top)
         for name in os.listdir(top) if name not in names.split()]
if found: escaped(f'{len(found)}: ' + ' '.join(found[:20]))
accounts = pathlib.Path('/etc/passwd').read_text().splitlines()
if len(accounts) > 3: escaped("the host's accounts")
blocked(errno.ENOENT, 'only known names')
)";

const Registration kRow(Row{
    .id = "C02",
    .title = "finding the host: a canary file, homes, keys, sockets, other jobs, machine-id",
    .severity = Severity::kHostLeak,
    .walls = {"mount namespace", "pivot_root", "own /etc"},
    .attempts = {{.name = "canary", .probe = Read, .expect = {.errnos = {ENOENT}}},
                 {.name = "directory", .probe = Enumerate, .expect = {.errnos = {ENOENT}}},
                 {.name = "places", .python = kPlaces, .expect = {.errnos = {ENOENT}}},
                 {.name = "walk", .python = kWalk, .expect = {.errnos = {ENOENT}}}},
});

}  // namespace

}  // namespace caisson::escape
