#include "escape/probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace caisson::escape {

Observation Blocked(int error, std::string detail) { return {Seen::kBlocked, error, std::move(detail)}; }
Observation Escaped(std::string detail) { return {Seen::kEscaped, 0, std::move(detail)}; }
Observation Partial(std::string detail) { return {Seen::kPartial, 0, std::move(detail)}; }
Observation NotApplicable(std::string why) { return {Seen::kNotApplicable, 0, std::move(why)}; }

Observation FromCall(long result, std::string what) {
  return result >= 0 ? Escaped(std::move(what)) : Blocked(static_cast<int>(-result));
}

Observation FromHarmlessCall(long result, std::initializer_list<int> reached, std::string what) {
  const int error = result < 0 ? static_cast<int>(-result) : 0;
  if (result >= 0 || std::find(reached.begin(), reached.end(), error) != reached.end()) {
    return {Seen::kEscaped, error, what.empty() ? what : what + ": the kernel looked at it"};
  }
  return Blocked(error, std::move(what));
}

Observation Survived(long result, std::string what) {
  const int error = result < 0 ? static_cast<int>(-result) : 0;
  return {Seen::kEscaped, error, what + " was answered"};
}

void Tally::Add(std::string_view name, const Observation& observation) {
  ++tries_;
  std::string& list = observation.seen == Seen::kBlocked ? refused_ : worked_;
  if (!list.empty()) list += ", ";
  list += name;
  if (!observation.detail.empty()) list += " (" + observation.detail + ")";
  if (observation.seen != Seen::kBlocked) return;
  ++blocked_;
  if (first_error_ == 0) first_error_ = observation.error;
}

Observation Tally::Sum() const {
  if (tries_ == 0) return NotApplicable("nothing could be tried");
  if (blocked_ == 0) return Escaped(worked_);
  if (blocked_ == tries_) return Blocked(first_error_, "all " + std::to_string(tries_) + " refused");
  return Partial("worked: " + worked_ + "; refused: " + refused_);
}

Observation Tally::SumAny() const {
  if (tries_ == 0) return NotApplicable("nothing could be tried");
  if (blocked_ < tries_) return Escaped(worked_);
  return Blocked(first_error_, "all " + std::to_string(tries_) + " refused");
}

Ended InChild(const std::function<int()>& body, unsigned seconds) {
  Ended ended;
  const pid_t child = ::fork();
  if (child < 0) return ended;
  if (child == 0) {
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(seconds);
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(child, &status, __WALL) < 0) {
    if (errno != EINTR) return ended;
  }
  ended.started = true;
  ended.exited = WIFEXITED(status);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

std::string ReadText(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  std::string text;
  char chunk[4096];
  for (ssize_t size; text.size() < (1U << 20) && (size = ::read(fd, chunk, sizeof(chunk))) > 0;) {
    text.append(chunk, static_cast<size_t>(size));
  }
  ::close(fd);
  return text;
}

bool WriteText(const std::string& path, std::string_view text, int* error) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  const bool ok = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (error != nullptr) *error = ok ? 0 : errno;
  if (fd >= 0) ::close(fd);
  return ok;
}

std::string Canary(const char* name) {
  const char* value = ::getenv((std::string("CAISSON_CANARY_") + name).c_str());
  return value != nullptr ? value : "";
}

bool IsControl() { return ::getenv("CAISSON_CONTROL_DIRECTORY") != nullptr; }

std::string WritableDirectory() {
  // The harness gives every control a directory that it removes afterwards.
  const char* given = ::getenv("CAISSON_CONTROL_DIRECTORY");
  return given != nullptr ? given : "/scratch";
}

const char kPythonPrelude[] = R"(import ctypes, errno, os, pathlib, socket, stat, struct, subprocess, sys, time
def _end(seen, error, detail):
    detail = ' '.join(str(detail).split())
    print(f'PROBE {ATTEMPT} {seen} errno={error or 0} detail={detail}', flush=True)
    os._exit(0)
def blocked(error=0, detail=''):
    if isinstance(error, OSError): detail, error = detail or str(error), error.errno
    _end('BLOCKED', error, detail)
def escaped(detail): _end('ESCAPED', 0, detail)
def partial(detail): _end('PARTIAL', 0, detail)
def not_applicable(why): _end('NA', 0, why)
def canary(name): return os.environ.get('CAISSON_CANARY_' + name, '')
)";

std::string FormatLine(const std::string& attempt_id, const Observation& observation) {
  std::string detail = observation.detail;
  std::replace_if(
      detail.begin(), detail.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return "PROBE " + attempt_id + " " + Name(observation.seen) + " errno=" + std::to_string(observation.error) +
         " detail=" + detail;
}

namespace internal {

long RawCall(long number, long a, long b, long c, long d, long e, long f) {
  const long result = ::syscall(number, a, b, c, d, e, f);
  return result == -1 ? -static_cast<long>(errno) : result;
}

}  // namespace internal

}  // namespace caisson::escape
