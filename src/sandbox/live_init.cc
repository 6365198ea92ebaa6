#include "sandbox/live_init.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/unique_fd.h"
#include "sandbox/control.h"
#include "sandbox/workload_start.h"

namespace caisson::sandbox {

namespace {

// A line of the process table.
struct Task {
  pid_t pid;
  pid_t parent;
  pid_t session;
  char state;
};

// Reads "PID (name) STATE PARENT GROUP SESSION …". The name is the workload's and may contain anything.
bool ReadTask(int directory, const char* name, Task& task) {
  char path[300], text[512];
  const size_t size = std::strlen(name);
  if (size + sizeof("/stat") > sizeof(path)) return false;
  std::memcpy(path, name, size);
  std::memcpy(path + size, "/stat", sizeof("/stat"));
  const UniqueFd file(::openat(directory, path, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  const ssize_t got = ::read(file.get(), text, sizeof(text) - 1);
  if (got <= 0) return false;
  text[got] = '\0';
  const char* rest = std::strrchr(text, ')');
  if (rest == nullptr || rest[1] != ' ' || rest[2] == '\0') return false;
  task.pid = static_cast<pid_t>(std::strtol(text, nullptr, 10));
  task.state = rest[2];
  char* end = nullptr;
  task.parent = static_cast<pid_t>(std::strtol(rest + 3, &end, 10));
  std::strtol(end, &end, 10);  // the process group
  task.session = static_cast<pid_t>(std::strtol(end, nullptr, 10));
  return true;
}

// Visits every entry of a directory of /proc whose name is a number; false when the directory cannot be read. Entries
// that end meanwhile are left out.
template <typename Visit>
bool ForEachTask(const char* path, const Visit& visit) {
  const UniqueFd directory(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return false;
  alignas(struct dirent64) char buffer[8192];
  for (;;) {
    const auto size = ::syscall(SYS_getdents64, directory.get(), buffer, sizeof(buffer));
    if (size <= 0) return size == 0;
    for (long at = 0; at < size;) {
      auto* entry = reinterpret_cast<struct dirent64*>(buffer + at);
      at += entry->d_reclen;
      Task task{};
      if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && ReadTask(directory.get(), entry->d_name, task))
        visit(task);
    }
  }
}

// In memory that exists before clone: PID 1 does not allocate.
struct LiveCommand {
  uint32_t number = 0;  // 0: the place is free
  pid_t pid = 0;
};
std::array<LiveCommand, kMaxLiveCommands> commands;

LiveCommand* Find(uint32_t number) {
  auto* const found =
      std::find_if(commands.begin(), commands.end(), [&](const auto& at) { return at.number == number; });
  return found == commands.end() ? nullptr : found;
}

void ReportEnd(const SetupContext& context, uint32_t number, int status, int64_t cpu_us) {
  Report report{};
  report.kind = Report::kCommandEnded;
  report.command = number;
  report.wait_status = status;
  report.cpu_us = cpu_us;
  Send(context, report);
}

void Begin(const SetupContext& context, ReceivedCommand& command) {
  LiveCommand* const place = Find(0);
  pid_t pid = -1;
  int error = EAGAIN;
  if (place != nullptr) {
    // As in an ordinary run: the child shares our memory until it executes, and we wait meanwhile.
    // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
    pid = ::vfork();
    if (pid == 0) BecomeWorkload(context, command, nullptr);
    // NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
    error = errno;
  }
  CloseStreams(command);
  if (pid > 0) {
    *place = {command.live, pid};
    return;
  }
  Report report{};
  report.kind = Report::kExecFailed;
  report.command = command.live;
  report.error = error;
  Send(context, report);
  ReportEnd(context, command.live, 0, 0);
}

void ReapEnded(const SetupContext& context) {
  int status = 0;
  struct rusage usage {};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0;) {
    for (LiveCommand& command : commands) {
      if (command.number == 0 || command.pid != pid) continue;
      ReportEnd(context, command.number, status, CpuMicroseconds(usage));
      command = {};
    }
  }
}

// The processes of one command, as they are found.
class Tree {
 public:
  bool Has(pid_t pid) const { return std::find(pids_.begin(), pids_.begin() + count_, pid) != pids_.begin() + count_; }
  // False when there is no room.
  bool Add(pid_t pid) {
    if (count_ == static_cast<ptrdiff_t>(pids_.size())) return false;
    pids_[static_cast<size_t>(count_++)] = pid;
    return true;
  }
  void Kill() const {
    for (ptrdiff_t i = 0; i < count_; ++i) ::kill(pids_[static_cast<size_t>(i)], SIGKILL);
  }

 private:
  std::array<pid_t, 4096> pids_;
  ptrdiff_t count_ = 0;
};

// Kills the main process, its session and all descendants of them. Each process is stopped as soon as it is found, so
// that it has no more children; the search is repeated until it finds nothing new. A tree that cannot be listed, or
// that does not stop growing, takes every process of the run with it: none of the command may stay.
void EndTree(pid_t main_pid) {
  static Tree tree;
  tree = Tree();
  tree.Add(main_pid);
  ::kill(main_pid, SIGSTOP);
  constexpr int kMostRounds = 64;
  bool complete = true;
  for (int round = 0; complete && round < kMostRounds; ++round) {
    bool grew = false;
    complete =
        ForEachTask("/proc",
                    [&](const Task& task) {
                      if (task.pid == 1 || tree.Has(task.pid) || (task.session != main_pid && !tree.Has(task.parent)))
                        return;
                      ::kill(task.pid, SIGSTOP);
                      grew = true;
                      if (!tree.Add(task.pid)) complete = false;
                    }) &&
        complete;
    if (complete && !grew) return tree.Kill();
  }
  ::kill(-1, SIGKILL);
}

bool HasStopped(const Task& task) { return std::strchr("TtZX", task.state) != nullptr; }

// Whether every thread of every other process has stopped.
bool AllStopped() {
  bool stopped = true;
  const bool read = ForEachTask("/proc", [&](const Task& process) {
    if (process.pid == 1 || !stopped) return;
    char path[64] = "/proc/";
    char digits[16];
    size_t size = 0, at = std::strlen(path);
    for (pid_t rest = process.pid; rest > 0; rest /= 10) digits[size++] = static_cast<char>('0' + rest % 10);
    while (size > 0) path[at++] = digits[--size];
    std::memcpy(path + at, "/task", sizeof("/task"));
    // A process without threads to list has ended.
    ForEachTask(path, [&](const Task& thread) { stopped = stopped && HasStopped(thread); });
  });
  return read && stopped;
}

// kill(-1) from PID 1 reaches all of the pid namespace under one lock: a process that is forking either is in the list
// or sees its pending signal first.
int StopAll() {
  ::kill(-1, SIGSTOP);
  constexpr int kMostLooks = 1000;
  for (int look = 0; look < kMostLooks; ++look) {
    if (AllStopped()) return 0;
    const struct timespec pause { 0, 2'000'000 };
    ::nanosleep(&pause, nullptr);
  }
  ::kill(-1, SIGCONT);
  return EBUSY;
}

void Obey(const SetupContext& context, const LiveOrder& order) {
  if (order.kind == LiveOrder::kEndAll) {
    ::kill(-1, SIGKILL);
    return;
  }
  if (order.kind == LiveOrder::kGoOn) {
    ::kill(-1, SIGCONT);
    return;
  }
  if (order.kind == LiveOrder::kStop) {
    Report report{};
    report.kind = Report::kStopped;
    report.error = StopAll();
    Send(context, report);
    return;
  }
  const LiveCommand* const command = Find(order.command);
  if (command == nullptr || order.command == 0) return;  // it has ended, and the report is on its way
  if (order.kind == LiveOrder::kEnd) return EndTree(command->pid);
  if (::kill(-command->pid, order.signal) != 0) ::kill(command->pid, order.signal);
}

}  // namespace

void RunLive(const SetupContext& context, ReceivedCommand& first, const sigset_t& signals) {
  Begin(context, first);
  WipeCommand(first);
  for (;;) {
    ReapEnded(context);
    for (;;) {
      ReceivedCommand command;
      LiveOrder order{};
      const Taken taken = TakeNext(context.control_fd, context.command_memory, command, order);
      if (taken == Taken::kInvalid) ::_exit(0);
      if (taken == Taken::kNothing) break;
      if (taken == Taken::kLiveOrder) {
        Obey(context, order);
        continue;
      }
      Begin(context, command);
      WipeCommand(command);
    }
    ::sigwaitinfo(&signals, nullptr);
  }
}

}  // namespace caisson::sandbox
