#include "runtime/microvm/machine_init.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "linux/syscalls.h"
#include "sandbox/mount_fd.h"

namespace caisson::runtime::microvm {

namespace {

constexpr uid_t kQemuId = 1000;  // inside the namespaces; the file server is 0 there
constexpr unsigned kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

[[noreturn]] void Fail(const char* step) {
  char line[256];
  const int size = std::snprintf(line, sizeof(line), "wall %s: %s\n", step, ::strerrordesc_np(errno));
  (void)!::write(STDERR_FILENO, line, static_cast<size_t>(size));
  ::_exit(1);
}

void Require(bool done, const char* step) {
  if (!done) Fail(step);
}

// Attaches a read-only copy of the host's tree or file at `path`, relative to `root`.
bool Show(int root, const char* source, const char* path, bool directory) {
  const int tree = sandbox::CloneTree(AT_FDCWD, source, directory ? AT_RECURSIVE : 0, kReadOnly);
  if (tree < 0) return false;
  UniqueFd mount(tree);
  const UniqueFd place = sandbox::OpenMountPoint(root, path, directory, true);
  return place && sandbox::AttachAt(std::move(mount), place) == 0;
}

bool ShowAll(int root, const std::vector<ShownPath>& paths) {
  const UniqueFd system = sandbox::MakeDirectories(root, "share/system");
  if (!system) return false;
  for (const ShownPath& shown : paths) {
    const char* const inside = shown.path.c_str() + 1;
    if (shown.kind == ShownPath::Kind::kLink) {
      if (::symlinkat(shown.link_target.c_str(), system.get(), inside) != 0) return false;
    } else if (!Show(system.get(), shown.path.c_str(), inside, shown.kind == ShownPath::Kind::kDirectory)) {
      return false;
    }
  }
  return true;
}

bool AttachMounts(int root, const MachinePlan& plan) {
  const UniqueFd mounts = sandbox::MakeDirectories(root, "share/mounts");
  if (!mounts) return false;
  for (size_t i = 0; i < plan.mounts.size(); ++i) {
    char name[24];
    std::snprintf(name, sizeof(name), "%zu", i);
    const UniqueFd place = sandbox::OpenMountPoint(mounts.get(), name, plan.mounts_are_directories[i], true);
    UniqueFd mount(::fcntl(plan.mounts[i].get(), F_DUPFD_CLOEXEC, 3));
    if (!place || !mount || sandbox::AttachAt(std::move(mount), place) != 0) return false;
  }
  return true;
}

// QEMU and the file server find the host's programs and libraries at their places.
bool ShowPrograms(int root) {
  if (!Show(root, "/usr", "usr", true)) return false;
  for (const char* const path : {"/lib", "/lib64", "/bin", "/sbin"}) {
    char target[256];
    const ssize_t size = ::readlink(path, target, sizeof(target) - 1);
    if (size > 0) {
      target[size] = '\0';
      if (::symlinkat(target, root, path + 1) != 0) return false;
    } else if (errno == EINVAL && !Show(root, path, path + 1, true)) {
      return false;
    }
  }
  struct stat info {};
  if (::stat("/etc/ld.so.cache", &info) != 0) return true;
  return sandbox::MakeDirectories(root, "etc") && Show(root, "/etc/ld.so.cache", "etc/ld.so.cache", false);
}

void BuildRoot(const MachineInit& init) {
  Require(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mounts");
  const UniqueFd root(sandbox::NewFilesystem("tmpfs", {{"mode", "0755"}, {"size", "1m"}, {"nr_inodes", "4096"}},
                                             MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  Require(root.valid(), "root");
  // Attached first: a mount can only be attached below one that is attached.
  Require(::move_mount(root.get(), "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) == 0, "root: attach at /tmp");
  Require(ShowPrograms(root.get()), "programs");
  Require(ShowAll(root.get(), init.plan->shown), "shown paths");
  Require(AttachMounts(root.get(), *init.plan), "mounts of the plan");
  const int proc = sandbox::NewFilesystem("proc", {}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  Require(proc >= 0 && ::mkdirat(root.get(), "proc", 0555) == 0, "proc");
  Require(sandbox::AttachAndClose(proc, root.get(), "proc") == 0, "proc");
  Require(::mkdirat(root.get(), "dev", 0755) == 0, "devices");
  if (init.kvm_fd >= 0)
    Require(::move_mount(init.kvm_fd, "", root.get(), "dev", MOVE_MOUNT_F_EMPTY_PATH) == 0, "devices");
  Require(::fchdir(root.get()) == 0 && linux_sys::PivotRoot(".", ".") == 0 && ::umount2(".", MNT_DETACH) == 0 &&
              ::chdir("/") == 0,
          "pivot_root");
  struct mount_attr sealed {};
  sealed.attr_set = MOUNT_ATTR_RDONLY;
  Require(::mount_setattr(AT_FDCWD, "/", 0, &sealed, sizeof(sealed)) == 0, "read-only root");
}

// SECURITY: a program inherits what it is given and nothing else.
void KeepOnly(const std::vector<int>& kept) {
  Require(::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0, "descriptors");
  for (const int fd : kept) Require(::fcntl(fd, F_SETFD, 0) == 0, "descriptors");
}

void StartChild(const ProgramArguments& program, const std::vector<int>& kept, bool is_qemu) {
  const pid_t pid = ::fork();
  Require(pid >= 0, "start a program");
  if (pid > 0) return;
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  KeepOnly(kept);
  if (is_qemu) {
    for (unsigned long capability = 0; ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; ++capability) {
    }
    Require(::setresgid(kQemuId, kQemuId, kQemuId) == 0 && ::setresuid(kQemuId, kQemuId, kQemuId) == 0, "user of QEMU");
  }
  char path[] = "PATH=/usr/sbin:/usr/bin";
  char* env[] = {path, nullptr};
  ::execve(program.argv[0], program.argv.data(), env);
  Fail(program.argv[0]);
}

}  // namespace

ProgramArguments::ProgramArguments(std::vector<std::string> given) : words(std::move(given)) {
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
}

void RunMachineInit(const MachineInit& init) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(init.log_fd, fd);
  ::prctl(PR_SET_NAME, "caisson-machine", 0, 0, 0);
  char go = 0;
  if (::read(init.go_fd, &go, 1) != 1) ::_exit(1);
  for (const int fd : init.task_fds) Require(::write(fd, "0", 1) == 1, "cgroup");
  Require(::setgroups(0, nullptr) == 0 && ::setresgid(0, 0, 0) == 0 && ::setresuid(0, 0, 0) == 0, "user");
  // After the change of user, which clears it. The parent keeps its end open as long as it lives.
  Require(::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0, "parent-death signal");
  struct pollfd parent {
    init.go_fd, 0, 0
  };
  if (::poll(&parent, 1, 0) != 0) ::_exit(1);
  Require(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  Require(::sethostname("caisson", 7) == 0, "host name");
  ::setsid();
  ::umask(022);
  BuildRoot(init);
  StartChild(*init.file_server, init.file_server_fds, false);
  StartChild(*init.qemu, init.qemu_fds, true);
  ::close_range(3, ~0U, 0);
  // Whichever ends first: the machine is of no use without the other. Orphans of the file server are reaped too.
  int status = 0;
  while (::waitpid(-1, &status, 0) < 0 && errno == EINTR) {
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace caisson::runtime::microvm
