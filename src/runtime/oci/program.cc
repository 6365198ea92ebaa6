#include "runtime/oci/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "linux/syscalls.h"

namespace caisson::runtime::oci {

namespace {

constexpr int kMountFailed = 250;  // exit codes between fork and exec; no container program uses them
constexpr int kExecFailed = 251;

bool MakeMount(const PrivateMount& mount) {
  switch (mount.kind) {
    case PrivateMount::Kind::kTmpfs:
      // The source is shown in the workload's mount table, as in native sandboxes.
      if (::mount("none", mount.target.c_str(), "tmpfs", mount.plain ? 0 : MS_NOSUID | MS_NODEV,
                  mount.options.c_str()) != 0)
        return false;
      for (const PrivateMount::Directory& directory : mount.directories) {
        const char* path = directory.path.c_str();
        if (::mkdir(path, 0755) != 0 || ::chmod(path, directory.mode) != 0 ||
            ::chown(path, mount.owner, mount.owner) != 0)
          return false;
      }
      for (const PrivateMount::Link& link : mount.links) {
        if (::symlink(link.target.c_str(), link.path.c_str()) != 0) return false;
      }
      for (const PrivateMount::File& file : mount.files) {
        const int fd = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        const auto size = static_cast<ssize_t>(file.text.size());
        const bool written = fd >= 0 && ::fchmod(fd, 0644) == 0 && ::fchown(fd, mount.owner, mount.owner) == 0 &&
                             ::write(fd, file.text.data(), file.text.size()) == size;
        if (fd >= 0) ::close(fd);
        if (!written) return false;
      }
      return true;
    case PrivateMount::Kind::kTree:
      return ::move_mount(mount.tree.get(), "", AT_FDCWD, mount.target.c_str(), MOVE_MOUNT_F_EMPTY_PATH) == 0;
    case PrivateMount::Kind::kOverlay:
      return ::mount("overlay", mount.target.c_str(), "overlay", MS_NOSUID | MS_NODEV, mount.options.c_str()) == 0;
  }
  return false;
}

// Runs: the forked child.
[[noreturn]] void Become(char* const* argv, char* const* env, const ProgramStreams& streams,
                         const std::vector<PrivateMount>& mounts) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setsid();  // signals of the caller's terminal are not for the container
  if (!mounts.empty()) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      ::_exit(kMountFailed);
    for (const PrivateMount& mount : mounts) {
      if (!MakeMount(mount)) ::_exit(kMountFailed);
    }
  }
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int fds[] = {streams.input >= 0 ? streams.input : nothing, streams.output >= 0 ? streams.output : nothing,
                     nothing};
  for (int i = 0; i < 3; ++i) {
    if (::dup2(fds[i], i) < 0) ::_exit(kExecFailed);
  }
  // SECURITY: runc keeps no descriptor of ours for its container (CVE-2024-21626).
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) ::_exit(kExecFailed);
  ::execve(argv[0], argv, env);
  ::_exit(kExecFailed);
}

}  // namespace

std::string FindProgram(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const char* directory : {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/"}) {
      const std::string path = directory + name;
      if (::access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return "";
}

Result<bool> RunProgram(const std::vector<std::string>& arguments, const ProgramStreams& streams,
                        const std::vector<PrivateMount>& mounts, int64_t within_ms) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::string path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  char* env[] = {path.data(), nullptr};  // SECURITY: nothing of our own environment
  const pid_t pid = ::fork();
  if (pid < 0) return Error::System(errno, "start " + arguments[0]);
  if (pid == 0) Become(argv.data(), env, streams, mounts);
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  struct pollfd wait {
    process.get(), POLLIN, 0
  };
  int ready;
  do {
    ready = ::poll(&wait, 1, static_cast<int>(within_ms));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) ::kill(pid, SIGKILL);  // not reaped yet, so the number is its own
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return Error::System(ETIMEDOUT, arguments[0] + " did not end in time");
  if (WIFEXITED(status) && WEXITSTATUS(status) == kMountFailed)
    return Error::System(EIO, "wall mounts: the container's mounts could not be made");
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExecFailed)
    return Error::Unsupported(arguments[0] + " cannot be executed");
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace caisson::runtime::oci
