// Changing programs, libraries and settings: in every way there is to change a file.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

long Result(long value) { return value < 0 ? -errno : value; }

// Everything that can be done to a directory and a file in it.
void Change(const std::string& directory, const std::string& file, Tally* tally) {
  const std::string fresh = directory + "/caisson-selftest", other = directory + "/caisson-selftest-2";
  const auto add = [&](const char* name, long result) { tally->Add(name + (" " + directory), Result(result)); };
  const auto open = [&](const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    const int error = errno;
    if (fd >= 0) ::close(fd);
    errno = error;
    return fd;
  };
  add("create", open(fresh, O_WRONLY | O_CREAT));
  add("write", open(file, O_WRONLY));
  add("mkdir", ::mkdir(other.c_str(), 0755));
  add("rmdir", ::rmdir((IsControl() ? other : directory).c_str()));
  add("symlink", ::symlink("/", other.c_str()));
  add("unlink", ::unlink(IsControl() ? other.c_str() : file.c_str()));
  add("link", ::link(file.c_str(), other.c_str()));
  add("rename", ::rename(file.c_str(), other.c_str()));
  if (IsControl()) ::rename(other.c_str(), file.c_str());
  add("chmod", ::chmod(file.c_str(), 0777));
  add("chown", ::chown(file.c_str(), ::geteuid(), ::getegid()));
  add("utimes", ::utimes(file.c_str(), nullptr));
  add("truncate", ::truncate(file.c_str(), 0));
  add("mkfifo", ::mkfifo((fresh + "-fifo").c_str(), 0600));
}

// A separate tree in the control, because other people use the host's.
std::string Target(const char* directory, const char* name) {
  if (!IsControl()) return directory;
  const std::string path = WritableDirectory() + directory;
  for (size_t slash = WritableDirectory().size(); slash != std::string::npos; slash = path.find('/', slash + 1))
    ::mkdir(path.substr(0, slash).c_str(), 0755);
  ::mkdir(path.c_str(), 0755);
  ::close(::open((path + "/" + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  return path;
}

// The host's files, shown inside. They also belong to another user.
Observation Shown() {
  Tally tally;
  for (const auto& [directory, name] :
       {std::pair{"/usr/bin", "env"}, std::pair{"/bin", "sh"}, std::pair{"/lib", "os-release"},
        std::pair{"/usr/local/bin", "."}, std::pair{"/etc/alternatives", "awk"}, std::pair{"/sbin", "ldconfig"}}) {
    if (std::string(name) == ".") {
      const std::string target = Target(directory, "file");
      const std::string fresh = target + "/fresh";
      tally.Add(directory, Result(::mkdir(fresh.c_str(), 0755)));
      continue;
    }
    const std::string target = Target(directory, name);
    Change(target, target + "/" + name, &tally);
  }
  return tally.Sum();
}

// What Caisson wrote for the workload belongs to its user: here only the mount refuses.
Observation Own() {
  Tally tally;
  const std::string etc = Target("/etc", "passwd");
  Change(etc, etc + "/passwd", &tally);
  tally.Add("mkdir /", Result(::mkdir((Target("/", "file") + "/fresh").c_str(), 0755)));
  tally.Add("mkdir /run", Result(::mkdir((Target("/run", "file") + "/fresh").c_str(), 0755)));
  return tally.Sum();
}

Observation Attribute() {
  const std::string file = IsControl() ? Target("/etc", "passwd") + "/passwd" : "/etc/passwd";
  return FromCall(Result(::setxattr(file.c_str(), "user.caisson", "1", 1, 0)), "set an attribute");
}

const std::vector<Report> kReports = {{"FilesystemWriteViolation", "fs.write"}};

constexpr char kMounts[] = R"(
writable = ('/scratch', '/tmp', '/dev/shm')
lines = [line.split() for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines()]
found = [line[4] for line in lines if 'ro' not in line[5].split(',') and line[4] not in writable]
if found: escaped('not mounted read-only: ' + ' '.join(found[:5]))
blocked(0, 'all mounted read-only')
)";

const Registration kRow(Row{
    .id = "C01",
    .title = "changing /usr, /etc, /bin, /lib: create, write, rename, chmod, truncate",
    .severity = Severity::kEscape,
    .walls = {"read-only mounts", "landlock"},
    .attempts = {{.name = "shown", .probe = Shown, .expect = {.errnos = {EROFS, EACCES, EPERM}, .reports = kReports}},
                 {.name = "own", .probe = Own, .expect = {.errnos = {EROFS}, .reports = kReports}},
                 {.name = "attribute", .probe = Attribute, .expect = {.errnos = {EROFS}, .reports = kReports}},
                 // Ownership alone would refuse most of it; the mounts must too.
                 {.name = "mounts", .python = kMounts}},
});

}  // namespace

}  // namespace caisson::escape
