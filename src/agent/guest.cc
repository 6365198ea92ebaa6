#include "agent/guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "agent/channel.h"
#include "agent/nested.h"
#include "agent/protocol.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/supervisor.h"
#include "linux/files.h"

namespace caisson::agent {

namespace {

constexpr uid_t kSupervisorId = 1000;
constexpr uid_t kFrontId = 65533;  // of this process, once the machine is prepared
constexpr int64_t kDeviceMs = 20'000;
constexpr int kCompressedModule = 4;  // MODULE_INIT_COMPRESSED_FILE

Status Mount(const char* source, const std::string& target, const char* type, unsigned long flags,
             const char* options = nullptr) {
  if (::mkdir(target.c_str(), 0755) != 0 && errno != EEXIST) return Error::System(errno, "make " + target);
  if (::mount(source, target.c_str(), type, flags, options) != 0)
    return Error::System(errno, "mount " + target + " (" + (type != nullptr ? type : "bind") + ")");
  return {};
}

std::vector<std::string> List(const std::string& path) {
  std::vector<std::string> names;
  DIR* const directory = ::opendir(path.c_str());
  if (directory == nullptr) return names;
  while (const struct dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

Status LoadModules() {
  for (const std::string& name : List("/modules")) {
    CAISSON_TRY(const UniqueFd file, linux_sys::Open("/modules/" + name, O_RDONLY));
    const int flags = EndsWith(name, ".ko") ? 0 : kCompressedModule;
    if (::syscall(SYS_finit_module, file.get(), "", flags) != 0 && errno != EEXIST)
      return Error::System(errno, "load the kernel module " + name);
  }
  return {};
}

// The kernel adds a port some time after its driver is loaded, and learns later still that the other end is open.
Result<UniqueFd> OpenPort() {
  constexpr char kPorts[] = "/sys/class/virtio-ports/";
  const int64_t until = MonotonicNanos() / 1'000'000 + kDeviceMs;
  UniqueFd port;
  while (MonotonicNanos() / 1'000'000 < until) {
    for (const std::string& name : port ? std::vector<std::string>() : List(kPorts)) {
      const Result<std::string> label = linux_sys::ReadSmallFile(AT_FDCWD, (kPorts + name + "/name").c_str());
      if (!label || *label != std::string(kPortName) + "\n") continue;
      port = UniqueFd(::open(("/dev/" + name).c_str(), O_RDWR | O_CLOEXEC));
    }
    struct pollfd wait {
      port.get(), POLLOUT, 0
    };
    if (port && ::poll(&wait, 1, 0) > 0 && (wait.revents & POLLHUP) == 0) return port;
    const struct timespec pause { 0, 5'000'000 };
    ::nanosleep(&pause, nullptr);
  }
  return Error::System(ENODEV, "the machine has no virtio port named " + std::string(kPortName));
}

// The initramfs cannot be the root of sandboxes: pivot_root refuses it.
Status MakeRoot() {
  const std::string root = "/root";
  CAISSON_TRY_VOID(Mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=0755"));
  for (const char* name : {"/dev", "/proc", "/sys"}) CAISSON_TRY_VOID(Mount(name, root + name, nullptr, MS_MOVE));
  CAISSON_TRY_VOID(Mount(kShareTag, root + "/shared", "virtiofs", MS_NOSUID | MS_NODEV));
  const std::string system = root + "/shared/system";
  for (const std::string& name : List(system)) {
    const std::string source = system + "/" + name, target = root + "/" + name;
    char link[PATH_MAX];
    if (const ssize_t size = ::readlink(source.c_str(), link, sizeof(link) - 1); size > 0) {
      link[size] = '\0';
      if (::symlink(link, target.c_str()) != 0) return Error::System(errno, "make " + target);
      continue;
    }
    CAISSON_TRY_VOID(Mount(source.c_str(), target, nullptr, MS_BIND));
  }
  CAISSON_TRY_VOID(Mount("devpts", root + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666,newinstance"));
  CAISSON_TRY_VOID(Mount("cgroup2", root + "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  for (const char* name : {"/tmp", "/run"}) {
    if (::mkdir((root + name).c_str(), 0755) != 0 && errno != EEXIST) return Error::System(errno, "make " + root);
  }
  if (::chmod((root + "/tmp").c_str(), 01777) != 0) return Error::System(errno, "chmod /tmp");
  if (::chdir(root.c_str()) != 0 || ::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || ::chroot(".") != 0 ||
      ::chdir("/") != 0)
    return Error::System(errno, "change the root");
  return {};
}

// As systemd does for Delegate=: the group's limits stay root's, what is below belongs to the supervisor.
Status Delegate() {
  constexpr char kControllers[] = "+memory +pids +cpu";
  const std::string base = "/sys/fs/cgroup", group = base + "/caisson", own = group + "/supervisor";
  CAISSON_TRY_VOID(linux_sys::WriteSmallFile(AT_FDCWD, (base + "/cgroup.subtree_control").c_str(), kControllers));
  for (const std::string& path : {group, own}) {
    if (::mkdir(path.c_str(), 0755) != 0) return Error::System(errno, "make " + path);
    for (const char* part : {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"}) {
      if (::chown((path + part).c_str(), kSupervisorId, kSupervisorId) != 0)
        return Error::System(errno, "chown " + path);
    }
  }
  return {};
}

bool Become(uid_t id) {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(id, id, id) == 0 && ::setresuid(id, id, id) == 0;
}

// Returns our end of the supervisor's connection.
Result<UniqueFd> StartSupervisor() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::System(errno, "make the supervisor's connection");
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Error::System(errno, "start the supervisor");
  if (pid > 0) return ours;
  ours.Reset();
  const bool joined =
      linux_sys::WriteSmallFile(AT_FDCWD, "/sys/fs/cgroup/caisson/supervisor/cgroup.procs", "0").has_value();
  ::signal(SIGCHLD, SIG_DFL);
  // Dumpable again: the supervisor writes the id maps of its children, whose files in /proc must be its own.
  if (!joined || !Become(kSupervisorId) || ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) ::_exit(1);
  theirs = launcher::ForgetLauncher(self, std::move(theirs), "caisson-run");
  launcher::RunRequest request;
  request.run = std::move(theirs);
  request.sender = {self, kSupervisorId, kSupervisorId};
  launcher::Supervise(std::move(request));
  ::_exit(0);
}

Result<UniqueFd> Prepare() {
  CAISSON_TRY_VOID(MakeRoot());
  // The machine is small: the kernel would refuse a large allocation before the workload reaches the limit of its
  // group, and no violation would be seen.
  CAISSON_TRY_VOID(linux_sys::WriteSmallFile(AT_FDCWD, "/proc/sys/vm/overcommit_memory", "1"));
  CAISSON_TRY_VOID(Delegate());
  CAISSON_TRY(UniqueFd supervisor, StartSupervisor());
  // SECURITY: the process at the port has no rights over the sandbox's supervisor, nor the supervisor over it.
  if (!Become(kFrontId) || ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    return Error::System(errno, "give up the rights of root");
  return supervisor;
}

// Before the port is open there is only the console, which the runtime shows when a machine does not start.
int FailOnConsole(const Error& error) {
  const std::string line = "caisson-agent: " + error.message + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  return 1;
}

}  // namespace

int ServeGuest() {
  ::signal(SIGCHLD, SIG_IGN);  // orphans of the whole machine end here
  ::signal(SIGPIPE, SIG_IGN);
  for (const auto& [type, target] :
       {std::pair{"devtmpfs", "/dev"}, std::pair{"proc", "/proc"}, std::pair{"sysfs", "/sys"}}) {
    if (const Status mounted = Mount(type, target, type, MS_NOSUID); !mounted) return FailOnConsole(mounted.error());
  }
  if (const Status loaded = LoadModules(); !loaded) return FailOnConsole(loaded.error());
  const Result<UniqueFd> port = OpenPort();
  if (!port) return FailOnConsole(port.error());
  Channel channel(port->get(), port->get());
  Result<UniqueFd> supervisor = Prepare();
  const Error error = supervisor ? ServeNested(channel, *std::move(supervisor)) : std::move(supervisor).error();
  channel.Send(Kind::kError, std::string_view(Encode(error)));
  channel.FlushAll();
  // The machine ends with this process; what is still in the port's queue would be lost. The runtime closes first.
  for (;;) {
    struct pollfd wait {
      port->get(), 0, 0
    };
    if (::poll(&wait, 1, 1000) > 0 && (wait.revents & POLLHUP) != 0) return 0;
  }
}

}  // namespace caisson::agent
