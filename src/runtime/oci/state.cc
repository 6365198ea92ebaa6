#include "runtime/oci/state.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "linux/files.h"
#include "runtime/oci/program.h"

namespace caisson::runtime::oci {

namespace {

// Not below /run/caisson, which only root may enter: the container program enters this one as the container's root.
constexpr char kBasePrefix[] = "/run/caisson-";
constexpr int64_t kRemovalMs = 20'000;
constexpr size_t kMostSwept = 64;
constexpr int kCleanupAttempts = 3;
constexpr char kGroups[] = "/sys/fs/cgroup";
constexpr int kGroupTries = 200;

std::string DirectoryOf(const std::string& base, int slot) { return base + "/" + std::to_string(slot); }

std::vector<std::string> InvocationFor(std::vector<std::string> program, const std::string& directory) {
  program.insert(program.end(), {"--root", directory + "/state", "--log", directory + "/log", "--log-format", "json"});
  return program;
}

// runsc leaves a group behind when processes of the sandbox are still ending while it removes the group.
void RemoveGroups(const std::string& id) {
  std::error_code error;
  std::vector<std::string> groups = {std::string(kGroups) + "/" + id + ".oci"};
  for (const auto& entry : std::filesystem::directory_iterator(kGroups, error))
    groups.push_back(entry.path().string() + "/" + id + ".oci");
  for (int tries = 0; tries < kGroupTries && !groups.empty(); ++tries) {
    const auto gone = [](const std::string& group) { return ::rmdir(group.c_str()) == 0 || errno != EBUSY; };
    groups.erase(std::remove_if(groups.begin(), groups.end(), gone), groups.end());
    const struct timespec pause { 0, 10'000'000 };
    if (!groups.empty()) ::nanosleep(&pause, nullptr);
  }
}

void Remove(const std::string& base, const std::vector<std::string>& program, int slot) {
  const std::string directory = DirectoryOf(base, slot);
  if (::access(directory.c_str(), F_OK) != 0) return;
  std::vector<std::string> command = InvocationFor(program, directory);
  command.insert(command.end(), {"delete", "--force", "caisson-" + std::to_string(slot)});
  (void)RunProgram(command, {}, {}, kRemovalMs);
  RemoveGroups("caisson-" + std::to_string(slot));
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

// Removes what runs left that were killed together with their cleanup process.
void Sweep(const std::string& base, const std::vector<std::string>& program) {
  std::error_code error;
  size_t looked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    int slot = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), slot).ptr != name.data() + name.size()) continue;
    if (++looked > kMostSwept) return;
    if (Result<sandbox::Slot> stale = sandbox::Slot::AcquireNumber(sandbox::Slot::DefaultDirectory(), slot))
      Remove(base, program, slot);
  }
}

}  // namespace

State::State(sandbox::Slot slot, std::string base, std::vector<std::string> program)
    : slot_(std::move(slot)),
      base_(std::move(base)),
      program_(std::move(program)),
      directory_(DirectoryOf(base_, slot_.number())) {}

Result<std::unique_ptr<State>> State::Make(const std::string& runtime, const std::vector<std::string>& program) {
  const std::string base = kBasePrefix + runtime;
  if (::mkdir(base.c_str(), 0711) != 0 && errno != EEXIST) return Error::System(errno, "make " + base);
  struct stat info {};
  if (::lstat(base.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != 0 || (info.st_mode & 022) != 0)
    return Error::Denied(base + ": not a directory that only root can write");
  CAISSON_TRY(sandbox::Slot slot, sandbox::Slot::Acquire(sandbox::Slot::DefaultDirectory()));
  Remove(base, program, slot.number());
  Sweep(base, program);
  std::unique_ptr<State> state(new State(std::move(slot), base, program));
  if (::mkdir(state->directory_.c_str(), 0711) != 0) return Error::System(errno, "make " + state->directory_);
  CAISSON_TRY_VOID(state->StartCleanup());
  return state;
}

std::vector<std::string> State::Invocation() const { return InvocationFor(program_, directory_); }

std::string State::ReadLog() const {
  const Result<std::string> log = linux_sys::ReadSmallFile(AT_FDCWD, (directory_ + "/log").c_str());
  if (!log) return "";
  const size_t at = log->rfind("\"msg\":\"");
  if (at == std::string::npos) return "";
  std::string text = log->substr(at + 7);
  // runc ends the text with the time, runsc with the level.
  return text.substr(0, std::min(text.find("\",\"time\""), text.find("\",\"level\"")));
}

// The process holds the slot, so that no other run takes its name before everything of it is gone.
Status State::StartCleanup() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make the cleanup's pipe");
  const UniqueFd read_end(ends[0]);
  alive_ = UniqueFd(ends[1]);
  std::vector<std::string> command = Invocation();
  command.insert(command.end(), {"delete", "--force", id()});
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* env[] = {nullptr};
  const int low = std::min(read_end.get(), slot_.fd()), high = std::max(read_end.get(), slot_.fd());
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  cleanup_ = ::fork();
  if (cleanup_ == 0) {
    // Only system calls from here on: other threads of the parent may have held locks.
    ::setsid();
    ::prctl(PR_SET_NAME, "caisson-cleanup", 0, 0, 0);
    ::close_range(0, static_cast<unsigned>(low) - 1, 0);
    if (high - low > 1) ::close_range(static_cast<unsigned>(low) + 1, static_cast<unsigned>(high) - 1, 0);
    ::close_range(static_cast<unsigned>(high) + 1, ~0U, 0);
    char nothing;
    while (::read(read_end.get(), &nothing, 1) < 0 && errno == EINTR) {
    }
    // More than once: the program may still be creating the container that it does not know yet.
    for (int attempt = 0; attempt < kCleanupAttempts; ++attempt) {
      const pid_t remover = ::fork();
      if (remover == 0) {
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        ::execve(argv[0], argv.data(), env);
        ::_exit(1);
      }
      while (::waitpid(remover, nullptr, 0) < 0 && errno == EINTR) {
      }
      const struct timespec pause { 1, 0 };
      ::nanosleep(&pause, nullptr);
    }
    ::_exit(0);  // the next start removes the directory, which holds no process, mount or group
  }
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return cleanup_ < 0 ? Status(Error::System(error, "start the cleanup")) : Status();
}

void State::RemoveContainer() { Remove(base_, program_, slot_.number()); }

State::~State() {
  RemoveContainer();
  if (cleanup_ <= 0) return;
  ::kill(cleanup_, SIGKILL);
  while (::waitpid(cleanup_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace caisson::runtime::oci
