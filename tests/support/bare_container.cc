#include "support/bare_container.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "linux/files.h"
#include "runtime/witnessed/pipes.h"
#include "runtime/witnessed/run.h"

namespace caisson::support {

namespace {

// Runs in the forked child; a failure prints the line and ends it.
void Must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  ::_exit(99);
}

void Bind(const std::string& source, const std::string& target, bool file) {
  if (file)
    Must(UniqueFd(::open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0755)).valid(), target.c_str());
  else
    Must(::mkdir(target.c_str(), 0755) == 0, target.c_str());
  Must(::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0, source.c_str());
}

void WriteTo(const std::string& path, const std::string& text) {
  Must(linux_sys::WriteSmallFile(AT_FDCWD, path.c_str(), text).has_value(), path.c_str());
}

void Create(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  Must(file.valid() && linux_sys::WriteAll(file.get(), text).has_value(), path.c_str());
}

// Runs as PID 1 of the namespaces.
[[noreturn]] void BecomeAgent(const std::string& root, const std::string& agent, int input, int output) {
  Must(::mount("tmpfs", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") == 0, "root");
  for (const char* name : {"/etc", "/dev", "/proc", "/scratch", "/tmp", "/workspace", "/dev/shm"})
    Must(::mkdir((root + name).c_str(), 0755) == 0, name);
  Bind("/usr", root + "/usr", false);
  for (const char* name : {"bin", "sbin", "lib", "lib64"})
    Must(::symlink((std::string("usr/") + name).c_str(), (root + "/" + name).c_str()) == 0, name);
  Bind("/etc/alternatives", root + "/etc/alternatives", false);
  Bind("/etc/ld.so.cache", root + "/etc/ld.so.cache", true);
  Create(root + "/etc/passwd", "user:x:1000:1000:user:/scratch:/bin/sh\n");
  Create(root + "/etc/nsswitch.conf", "hosts: files dns\n");
  Create(root + "/etc/hosts", "127.0.0.1 localhost\n");
  Create(root + "/etc/resolv.conf", "nameserver 127.0.0.53\noptions timeout:1 attempts:1\n");
  for (const char* name : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"})
    Bind(name, root + name, true);
  Must(::mkdir((root + "/dev/pts").c_str(), 0755) == 0, "pts");
  Must(
      ::mount("devpts", (root + "/dev/pts").c_str(), "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666") == 0,
      "devpts");
  Must(::symlink("pts/ptmx", (root + "/dev/ptmx").c_str()) == 0, "ptmx");
  for (const auto& [target, link] : {std::pair{"/proc/self/fd", "/dev/fd"}, std::pair{"/proc/self/fd/0", "/dev/stdin"},
                                     std::pair{"/proc/self/fd/1", "/dev/stdout"}})
    Must(::symlink(target, (root + link).c_str()) == 0, link);
  Must(::mount("proc", (root + "/proc").c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0, "proc");
  // What a container program does for its network: the loopback is up, and the agent may serve names there.
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct ifreq loopback {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  Must(::ioctl(socket.get(), SIOCSIFFLAGS, &loopback) == 0, "loopback");
  WriteTo(root + "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  for (const char* name : {"/scratch", "/tmp", "/dev/shm", "/workspace"})
    Must(::mount("tmpfs", (root + name).c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m") == 0, name);
  Bind(agent, root + "/agent", true);
  Must(::chdir(root.c_str()) == 0, "chdir");
  Must(::syscall(SYS_pivot_root, ".", ".") == 0 && ::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0, "pivot");
  struct mount_attr read_only {};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  for (const char* path : {"/", "/usr"})
    Must(::mount_setattr(AT_FDCWD, path, 0, &read_only, sizeof(read_only)) == 0, "read-only");
  Must(::dup2(input, 0) == 0 && ::dup2(output, 1) == 1 && ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0, "streams");
  char* argv[] = {const_cast<char*>("caisson-agent"), nullptr};
  char* env[] = {nullptr};
  ::execve("/agent", argv, env);
  Must(false, "exec the agent");
  ::_exit(99);
}

class BareContainer : public runtime::witnessed::PipedContainer {
 public:
  static Result<std::unique_ptr<BareContainer>> Start(const std::string& agent) {
    std::unique_ptr<BareContainer> container(new BareContainer);
    CAISSON_TRY(runtime::witnessed::AgentPipes pipes, container->MakePipes());
    const std::string root = "/mnt";  // covered in a mount namespace of its own
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    container->pid_ = ::fork();
    if (container->pid_ == 0) {
      Must(::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) == 0,
           "unshare");
      WriteTo("/proc/self/setgroups", "deny");
      WriteTo("/proc/self/uid_map", "1000 " + std::to_string(user) + " 1");
      WriteTo("/proc/self/gid_map", "1000 " + std::to_string(group) + " 1");
      Must(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private");
      const pid_t first = ::fork();
      if (first == 0) BecomeAgent(root, agent, pipes.input.get(), pipes.output.get());
      pipes.input.Reset();
      pipes.output.Reset();
      Must(::close_range(3, ~0U, 0) == 0, "close");
      ::waitpid(first, nullptr, 0);
      ::_exit(0);
    }
    if (container->pid_ < 0) return Error::System(errno, "fork");
    return container;
  }
  ~BareContainer() override { BareContainer::Kill(); }

  Result<std::optional<sandbox::GroupCounters>> ReadCounters() override {
    return std::optional<sandbox::GroupCounters>();
  }
  // The agent ends with its stream, and everything inside with the agent.
  void Kill() override {
    if (pid_ <= 0) return;
    CloseStreams();
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  BareContainer() = default;
  pid_t pid_ = -1;
};

class BareRuntime : public runtime::Runtime {
 public:
  explicit BareRuntime(std::string agent) : agent_(std::move(agent)) {}

  policy::RuntimeDescription Describe() const override {
    policy::RuntimeDescription description;
    description.name = "agent";
    return description;
  }
  Result<std::unique_ptr<runtime::Run>> Start(policy::RunPlan plan) override {
    CAISSON_TRY(runtime::witnessed::LoweredPlan lowered, runtime::witnessed::Lower(plan, Describe()));
    // Plain namespaces without a cgroup: the agent watches the limits.
    lowered.agent.watch_limits = lowered.agent.limit_processes_by_rlimit = true;
    CAISSON_TRY(std::unique_ptr<BareContainer> container, BareContainer::Start(agent_));
    return runtime::witnessed::BeginRun(std::move(container), std::move(lowered),
                                        [](const agent::Ready& ready) -> Result<runtime::IsolationReport> {
                                          runtime::IsolationReport report;
                                          report.runtime = "agent";
                                          report.landlock_abi = ready.landlock_abi;
                                          return report;
                                        });
  }

 private:
  const std::string agent_;
};

}  // namespace

std::unique_ptr<runtime::Runtime> MakeBareRuntime(std::string agent) {
  return std::make_unique<BareRuntime>(std::move(agent));
}

}  // namespace caisson::support
