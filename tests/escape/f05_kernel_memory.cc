// Memory that the kernel holds for a program and no process maps: full pipes and sockets, timers, descriptors on their
// way, message queues.
//
// SAFETY: at most 128 MiB, or a few thousand small objects; all of it goes with the process.
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kTaken = size_t{128} << 20;
constexpr int kMany = 5000;

void RaiseDescriptorLimit() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

size_t FillUp(int fd) {
  static const std::vector<char> block(65536, 'x');
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  size_t filled = 0;
  for (ssize_t size; (size = ::write(fd, block.data(), block.size())) > 0;) filled += static_cast<size_t>(size);
  return filled;
}

Observation Hold(const char* what) {
  ::usleep(300'000);
  return Escaped(std::string("128 MiB in ") + what);
}

Observation Sockets() {
  RaiseDescriptorLimit();
  for (size_t held = 0; held < kTaken;) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Blocked(errno);
    const int size = 1 << 20;
    for (const int end : ends) {
      ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
      held += FillUp(end);
    }
  }
  return Hold("sockets");
}

Observation Pipes() {
  RaiseDescriptorLimit();
  for (size_t held = 0; held < kTaken;) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Blocked(errno);
    if (::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 0) return Blocked(errno, "of a pipe's size");
    held += FillUp(ends[1]);
  }
  return Hold("pipes");
}

Observation Timers() {
  struct sigevent quiet {};
  quiet.sigev_notify = SIGEV_SIGNAL;
  quiet.sigev_signo = SIGUSR1;
  for (int i = 0; i < kMany; ++i) {
    int timer = 0;
    if (const long result = Call(SYS_timer_create, CLOCK_MONOTONIC, &quiet, &timer); result < 0)
      return Blocked(static_cast<int>(-result), "after " + std::to_string(i));
  }
  return Escaped("5000 timers");
}

// In queues nobody reads, where no process's table counts them.
Observation InFlight() {
  RaiseDescriptorLimit();
  constexpr int kAtOnce = 250;
  std::vector<int> fds(kAtOnce, 0);
  for (int sent = 0; sent < kMany; sent += kAtOnce) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) return Blocked(errno);
    fds.assign(kAtOnce, ends[0]);
    alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int) * kAtOnce)] = {};
    char byte = 'x';
    struct iovec data {
      &byte, 1
    };
    struct msghdr message {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = rights;
    message.msg_controllen = sizeof(rights);
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * kAtOnce);
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * kAtOnce);
    if (::sendmsg(ends[0], &message, MSG_DONTWAIT) != 1) return Blocked(errno, "after " + std::to_string(sent));
  }
  return Escaped("5000 descriptors in flight");
}

// The kernel's default for everybody is ten such queues.
Observation Queues() {
  const struct rlimit more { 8U << 20, 8U << 20 };
  ::setrlimit(RLIMIT_MSGQUEUE, &more);
  struct mq_attr size {};
  size.mq_maxmsg = 10;
  size.mq_msgsize = 8192;
  for (int i = 0; i < 24; ++i) {
    const std::string name = "/caisson-selftest-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    const mqd_t queue = ::mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &size);
    if (queue < 0) return Blocked(errno, "after " + std::to_string(i));
    ::mq_unlink(name.c_str());
  }
  return Escaped("24 message queues");
}

// What only a cgroup can count. Where there is none the result says that this wall is degraded, and then an escape is
// what was announced: nothing is proved either way.
Judgement JudgeCounted(Host& host) {
  std::string held;
  for (const auto& [attempt, memory] : {std::pair{"F05/sockets", "64M"}, std::pair{"F05/pipes", "32M"}}) {
    if (const auto bare = host.RunControl(attempt).Saw(attempt); !bare || bare->seen != Seen::kEscaped) continue;
    const Outcome run = host.Run({.command = host.ProbeCommand(attempt), .flags = {"--memory", memory}});
    if (!run.result) return Broken(std::string(attempt) + ": no result");
    if (const auto saw = run.Saw(attempt); saw && saw->seen != Seen::kBlocked) {
      const std::string degraded = nlohmann::json::parse(run.result->text)["isolation"]["degraded"].dump();
      if (degraded.find("cgroup") == std::string::npos) return Broken(std::string(attempt) + ": " + saw->detail);
      return Vacuous(std::string(attempt) + ": kernel memory is not limited without a cgroup, as the result says");
    }
    if (run.result->Find("MemoryLimitViolation", "limit.mem") == nullptr)
      return Broken(std::string(attempt) + ": not reported");
    held += std::string(held.empty() ? "" : ", ") + (attempt + 4);
  }
  return held.empty() ? Vacuous("without a sandbox it does not work either") : Held("counted: " + held);
}

const Registration kRow(Row{
    .id = "F05",
    .title = "the kernel's memory: sockets, pipes, timers, descriptors, queues",
    .severity = Severity::kHostDenial,
    .walls = {"memory limit", "resource limits"},
    .attempts = {{.name = "sockets", .probe = Sockets, .judge_only = true},
                 {.name = "pipes", .probe = Pipes, .judge_only = true},
                 {.name = "timers", .probe = Timers, .expect = {.errnos = {EAGAIN}}},
                 {.name = "in_flight", .probe = InFlight, .expect = {.errnos = {ETOOMANYREFS}}},
                 {.name = "queues", .probe = Queues, .expect = {.errnos = {EMFILE}}}},
    .judge = JudgeCounted,
});

}  // namespace

}  // namespace caisson::escape
