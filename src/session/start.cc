#include "session/start.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "linux/files.h"
#include "session/protocol.h"
#include "session/supervisor.h"
#include "verify/json_fields.h"

namespace caisson::session {

using nlohmann::json;

namespace {

// Runs: child after fork, possibly of a program with threads: system calls only.
[[noreturn]] void Become(const char* program, char* const* arguments, int log, int nothing, int ready) {
  // Numbers below 4 are about to be replaced.
  log = ::fcntl(log, F_DUPFD, 10);
  nothing = ::fcntl(nothing, F_DUPFD, 10);
  ready = ::fcntl(ready, F_DUPFD, 10);
  ::setsid();
  if (::fork() != 0) ::_exit(0);  // the caller waits for this one; the supervisor belongs to init
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  ::dup2(nothing, 0);
  ::dup2(log, 1);
  ::dup2(log, 2);
  ::dup2(ready, kReadyFd);
  ::close_range(kReadyFd + 1, ~0U, 0);
  if (::chdir("/") == 0) ::execv(program, arguments);
  ::_exit(127);
}

}  // namespace

Result<Record> StartSupervisor(const SessionDirectory& directory, const OpenRequest& request,
                               const std::string& program) {
  CAISSON_TRY_VOID(directory.WriteText("request.json", ToJson(request).dump() + "\n"));
  UniqueFd log(::openat(directory.fd(), "supervisor.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (!log || !nothing || ::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "start the supervisor");
  UniqueFd ready(ends[0]), theirs(ends[1]);
  std::string words[] = {"caisson", "session", "supervise", directory.path()};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  const pid_t child = ::fork();
  if (child < 0) return Error::System(errno, "start the supervisor");
  if (child == 0) Become(program.c_str(), arguments, log.get(), nothing.get(), theirs.get());
  theirs.Reset();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxMessageBytes) {
    const ssize_t count = ::read(ready.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  const Result<json> report = verify::ReadJson(text, {});
  if (!report || !report->is_object()) {
    const Result<std::string> said = directory.ReadText("supervisor.log", 4096);
    return Error::System(ECHILD, "the session's supervisor ended before it was ready" +
                                     (said && !said->empty() ? "; it said: " + *said : std::string()));
  }
  if (const json* error = verify::FindMember(*report, "error"))
    return ErrorFrom(error->value("kind", ""), error->value("message", ""));
  return directory.ReadRecord();
}

int Supervise(const std::string& path, const runtime::Runtimes& runtimes, const OpenImage& open_image) {
  UniqueFd ready(kReadyFd);
  ::fcntl(kReadyFd, F_SETFD, FD_CLOEXEC);
  const auto report = [&](const json& document) {
    (void)linux_sys::WriteAll(ready.get(), document.dump(-1, ' ', false, json::error_handler_t::replace));
    ready.Reset();
  };
  Result<std::unique_ptr<Supervisor>> supervisor = [&]() -> Result<std::unique_ptr<Supervisor>> {
    CAISSON_TRY(SessionDirectory directory, SessionDirectory::Open(path));
    return Supervisor::Open(std::move(directory), runtimes, open_image);
  }();
  if (!supervisor) {
    const Error& error = supervisor.error();
    std::fprintf(stderr, "%s\n", error.message.c_str());
    report({{"error", {{"kind", NameOf(error.kind)}, {"message", error.message}}}});
    return 1;
  }
  report({{"ok", true}});
  (*supervisor)->Run();
  return 0;
}

}  // namespace caisson::session
