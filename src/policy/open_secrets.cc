// Opens the sources of secrets. SECURITY: this process clones PID 1 of a sandbox, which begins with a copy of its
// memory, so no secret is ever read here: a file is passed on as a descriptor, a command writes into a file in memory,
// and a variable is written there straight from the environment and then overwritten where it stood.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "linux/files.h"
#include "policy/credentials.h"

extern char** environ;

namespace caisson::policy {

namespace {

constexpr off_t kMaxSecretBytes = 8192;
constexpr int kCommandMs = 30'000;

Result<UniqueFd> MemoryFile() {
  UniqueFd file(::memfd_create("secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error::System(errno, "make a file in memory");
  return file;
}

Status CheckSize(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::System(errno, "stat the secret");
  if (info.st_size == 0) return Error::Invalid("the secret is empty");
  if (info.st_size > kMaxSecretBytes) return Error::Invalid("the secret is longer than 8192 bytes");
  return {};
}

Result<UniqueFd> FromFile(const std::string& path) {
  CAISSON_TRY(UniqueFd file, linux_sys::Open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Error::System(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Error::Invalid(path + ": not a regular file");
  if ((info.st_mode & 077) != 0) return Error::Invalid(path + ": other users may use this secret too; chmod 600 it");
  CAISSON_TRY_VOID(CheckSize(file.get()));
  return file;
}

// A variable is taken once and kept, because it is gone from the environment afterwards.
Result<UniqueFd> FromEnvironment(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, UniqueFd>& taken = *new std::map<std::string, UniqueFd>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (taken.count(name) == 0) {
    char* value = ::getenv(name.c_str());
    if (value == nullptr) return Error::Invalid("the variable " + name + " is not set");
    CAISSON_TRY(UniqueFd file, MemoryFile());
    const size_t size = std::strlen(value);
    CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), std::string_view(value, size)));
    ::explicit_bzero(value, size);
    ::unsetenv(name.c_str());
    CAISSON_TRY_VOID(CheckSize(file.get()));
    taken[name] = std::move(file);
  }
  UniqueFd copy(::fcntl(taken[name].get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return Error::System(errno, "copy a descriptor");
  return copy;
}

Status AwaitCommand(pid_t pid, const std::string& program) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  struct pollfd wait {
    process.get(), POLLIN, 0
  };
  int ready;
  do {
    ready = ::poll(&wait, 1, kCommandMs);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return Error::Invalid(program + " did not end within 30 seconds");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Error::Invalid(program + " failed");
  return {};
}

Result<UniqueFd> FromCommand(const std::vector<std::string>& command) {
  CAISSON_TRY(UniqueFd file, MemoryFile());
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, file.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int fault = ::posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (fault != 0) return Error::System(fault, "start " + command[0]);
  CAISSON_TRY_VOID(AwaitCommand(pid, command[0]));
  CAISSON_TRY_VOID(CheckSize(file.get()));
  return file;
}

}  // namespace

Status OpenSecrets(std::vector<PlannedCredential>& credentials) {
  for (PlannedCredential& one : credentials) {
    const SecretSource& source = one.bound.secret;
    Result<UniqueFd> secret = !source.file.empty()          ? FromFile(source.file)
                              : !source.environment.empty() ? FromEnvironment(source.environment)
                                                            : FromCommand(source.command);
    if (!secret) return std::move(secret).error().In("credential " + one.bound.name);
    one.secret = *std::move(secret);
    if (one.bound.ca_file.empty()) continue;
    Result<UniqueFd> ca = linux_sys::Open(one.bound.ca_file, O_RDONLY);
    if (!ca) return std::move(ca).error().In("credential " + one.bound.name);
    one.ca = *std::move(ca);
  }
  return {};
}

}  // namespace caisson::policy
