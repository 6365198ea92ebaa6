#include "escape/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace caisson::escape {

namespace {

constexpr size_t kMaxOutput = 8U << 20;

bool MakePipe(UniqueFd* read_end, UniqueFd* write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end->Reset(ends[0]);
  write_end->Reset(ends[1]);
  return true;
}

// False when the stream has ended.
bool Drain(UniqueFd& fd, std::string* to) {
  char chunk[16384];
  const ssize_t size = ::read(fd.get(), chunk, sizeof(chunk));
  if (size < 0) return errno == EINTR || errno == EAGAIN;
  if (size == 0) return false;
  if (to->size() < kMaxOutput) to->append(chunk, static_cast<size_t>(size));
  return true;
}

}  // namespace

int64_t NowMs() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      pidfd_(std::move(other.pidfd_)),
      finished_(std::move(other.finished_)),
      lines_read_(other.lines_read_) {}

Process::~Process() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Process Process::Start(const Command& command) {
  Process process;
  UniqueFd input, output, error;
  if (!MakePipe(&input, &process.input_) || !MakePipe(&process.output_, &output) ||
      !MakePipe(&process.error_, &error)) {
    return process;
  }
  std::vector<char*> argv;
  for (const std::string& argument : command.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t harness = ::getpid();
  process.pid_ = ::fork();
  if (process.pid_ == 0) {
    if (command.new_session) {
      ::setsid();
    } else {
      ::setpgid(0, 0);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != harness) ::_exit(125);
    for (const auto& [key, value] : command.env) ::setenv(key.c_str(), value.c_str(), 1);
    if (!command.directory.empty() && ::chdir(command.directory.c_str()) != 0) ::_exit(125);
    ::dup2(command.standard_input >= 0 ? command.standard_input : input.get(), 0);
    ::dup2(output.get(), 1);
    ::dup2(error.get(), 2);
    if (command.before_exec && !command.before_exec()) ::_exit(125);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  if (!command.new_session) ::setpgid(process.pid_, process.pid_);
  process.finished_.started = process.pid_ > 0;
  if (process.started()) process.pidfd_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, process.pid_, 0)));
  return process;
}

bool Process::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(input_.get(), text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

bool Process::Pump(int timeout_ms) {
  struct pollfd sources[3] = {{output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}, {pidfd_.get(), POLLIN, 0}};
  if (::poll(sources, 3, timeout_ms) <= 0) return false;
  if (sources[0].revents != 0 && !Drain(output_, &finished_.out)) output_.Reset();
  if (sources[1].revents != 0 && !Drain(error_, &finished_.err)) error_.Reset();
  return true;
}

bool Process::ReadLine(std::string* line, int timeout_ms) {
  const int64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    if (const size_t end = finished_.out.find('\n', lines_read_); end != std::string::npos) {
      *line = finished_.out.substr(lines_read_, end - lines_read_);
      lines_read_ = end + 1;
      return true;
    }
    const int64_t left = deadline - NowMs();
    if (left <= 0 || !output_.valid()) return false;
    Pump(static_cast<int>(left));
  }
}

void Process::Signal(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

Finished Process::Finish(int timeout_ms) {
  input_.Reset();
  const int64_t deadline = NowMs() + timeout_ms;
  int status = 0;
  // A grandchild may hold the streams open for ever, so wait for the process instead.
  while (pid_ > 0) {
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) break;
    const int64_t left = deadline - NowMs();
    if (left <= 0 && !finished_.timed_out) {
      finished_.timed_out = true;
      ::kill(-pid_, SIGKILL);
      ::kill(pid_, SIGKILL);
    }
    Pump(left > 0 ? static_cast<int>(left) : 10);
  }
  pid_ = -1;
  pidfd_.Reset();
  while (Pump(0)) {
  }
  if (WIFEXITED(status)) finished_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) finished_.signal = WTERMSIG(status);
  return std::move(finished_);
}

}  // namespace caisson::escape
