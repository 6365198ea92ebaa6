#include "intake/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace caisson::intake {
namespace {

constexpr char kProgram[] = "caisson-intake";

Result<std::string> FindProgram() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0 || size == sizeof(path)) return Error::System(size < 0 ? errno : ENAMETOOLONG, "read /proc/self/exe");
  const std::string_view self(path, static_cast<size_t>(size));
  return std::string(self.substr(0, self.rfind('/') + 1)) + kProgram;
}

// Owns the attributes and actions of posix_spawn(3).
struct SpawnSettings {
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// Standard input and output; standard error is /dev/null, no other descriptor; no signal blocked or ignored.
int Fill(SpawnSettings& settings, int input, int output) {
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  for (const int fault : {
           ::posix_spawn_file_actions_adddup2(&settings.files, input, STDIN_FILENO),
           ::posix_spawn_file_actions_adddup2(&settings.files, output, STDOUT_FILENO),
           ::posix_spawn_file_actions_addopen(&settings.files, STDERR_FILENO, "/dev/null", O_WRONLY, 0),
           ::posix_spawn_file_actions_addclosefrom_np(&settings.files, STDERR_FILENO + 1),
           ::posix_spawnattr_setsigmask(&settings.attributes, &none),
           ::posix_spawnattr_setsigdefault(&settings.attributes, &all),
           ::posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF),
       }) {
    if (fault != 0) return fault;
  }
  return 0;
}

}  // namespace

Result<HelperProcess> HelperProcess::Start(int input, const std::vector<std::string>& arguments) {
  CAISSON_TRY(std::string program, FindProgram());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  UniqueFd reading(ends[0]), writing(ends[1]);
  // Numbers from 3 on, so that none of the three overwrites another before it was moved.
  UniqueFd source(::fcntl(input, F_DUPFD_CLOEXEC, 3)), target(::fcntl(writing.get(), F_DUPFD_CLOEXEC, 3));
  if (!source || !target) return Error::System(errno, "duplicate a descriptor");
  SpawnSettings settings;
  int fault = Fill(settings, source.get(), target.get());
  std::vector<char*> argv{program.data()};
  std::vector<std::string> words = arguments;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* environment[] = {nullptr};  // SECURITY: ours could name libraries to load
  pid_t pid = -1;
  if (fault == 0)
    fault = ::posix_spawn(&pid, program.c_str(), &settings.files, &settings.attributes, argv.data(), environment);
  if (fault == ENOENT || fault == EACCES) {
    return Error::Unsupported(program + ": " + std::strerror(fault) +
                              "; this helper unpacks archives: install it beside this program");
  }
  if (fault != 0) return Error::System(fault, "start " + program);
  return HelperProcess(pid, std::move(reading));
}

Result<HelperProcess> HelperProcess::StartFed(const std::vector<std::string>& arguments) {
  // A socket, because writing to a pipe without a reader would send us a signal.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Error::System(errno, "make a socket");
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  CAISSON_TRY(HelperProcess started, Start(theirs.get(), arguments));
  started.input_ = std::move(ours);
  return started;
}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)), input_(std::move(other.input_)) {}

HelperProcess::~HelperProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // not reaped yet, so the pid is still valid
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status HelperProcess::Reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
    if (errno == EINTR) continue;
    pid_ = -1;
    return Error::System(errno, std::string("wait for ") + kProgram);
  }
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) return Error::Invalid("the archive takes too long to unpack");
  if (WIFSIGNALED(status)) {
    return Error::Invalid("the archive crashed the unpacking helper: signal " + std::to_string(WTERMSIG(status)) +
                          " (" + ::strsignal(WTERMSIG(status)) + ")");
  }
  return Error{ErrorKind::kSystem, 0,
               std::string(kProgram) + " ended with exit code " + std::to_string(WEXITSTATUS(status))};
}

Status HelperProcess::WriteSome(const std::function<Result<std::string_view>()>& give, std::string_view& left) {
  if (left.empty()) {
    CAISSON_TRY(left, give());
    if (left.empty()) {
      input_.Reset();
      return {};
    }
  }
  const ssize_t size = ::send(input_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size >= 0) {
    left.remove_prefix(static_cast<size_t>(size));
  } else if (errno == EPIPE || errno == ECONNRESET) {
    input_.Reset();  // it has refused the archive, and its output says why
  } else if (errno != EAGAIN && errno != EINTR) {
    return Error::System(errno, std::string("write to ") + kProgram);
  }
  return {};
}

Status HelperProcess::Exchange(const std::function<Result<std::string_view>()>& give,
                               const std::function<Status(std::string_view)>& take, int64_t seconds) {
  std::string_view left;
  char chunk[256 << 10];
  for (;;) {
    struct pollfd ends[] = {{output_.get(), POLLIN, 0}, {input_ ? input_.get() : -1, POLLOUT, 0}};
    const int ready = ::poll(ends, 2, static_cast<int>(seconds * 1000));
    if (ready < 0 && errno != EINTR) return Error::System(errno, std::string("wait for ") + kProgram);
    if (ready == 0) return Error::Invalid("the archive takes too long to unpack");
    if (ready < 0) continue;
    if (ends[1].revents != 0) CAISSON_TRY_VOID(WriteSome(give, left));
    if (ends[0].revents == 0) continue;
    const ssize_t size = ::read(output_.get(), chunk, sizeof(chunk));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Error::System(errno, std::string("read from ") + kProgram);
    if (size == 0) return Reap();
    CAISSON_TRY_VOID(take({chunk, static_cast<size_t>(size)}));
  }
}

Status HelperProcess::ReadUntilEnd(const std::function<Status(std::string_view)>& take, int64_t seconds) {
  const int64_t deadline = MonotonicNanos() + seconds * 1'000'000'000;
  char chunk[65536];
  for (;;) {
    const int64_t left = std::max<int64_t>(0, (deadline - MonotonicNanos()) / 1'000'000);
    struct pollfd readable = {output_.get(), POLLIN, 0};
    const int ready = ::poll(&readable, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return Error::System(errno, std::string("wait for ") + kProgram);
    if (ready == 0) return Error::Invalid("the archive takes too long to unpack");
    if (ready < 0) continue;
    const ssize_t size = ::read(output_.get(), chunk, sizeof(chunk));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Error::System(errno, std::string("read from ") + kProgram);
    if (size == 0) return Reap();
    CAISSON_TRY_VOID(take({chunk, static_cast<size_t>(size)}));
  }
}

}  // namespace caisson::intake
