// Memory that waits in sockets: TCP, UDP, unix and netlink. Some cgroup drivers charge it to another counter than the
// group's memory, some kinds are not charged at all, and without a cgroup it appears in no process.
//
// SAFETY: 160 MiB against a limit of 64 MiB, and it goes with the process.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr size_t kTaken = size_t{160} << 20;
constexpr int kMostSockets = 1900;

// Long enough for a supervisor that samples twice a second.
Observation Hold(size_t held, const char* what) {
  for (const int64_t end = NowMs() + 3000; NowMs() < end;) ::usleep(50'000);
  const std::string text = std::to_string(held >> 20) + " MiB in " + what;
  return held >= kTaken ? Escaped(text) : Blocked(ENOBUFS, text);
}

void Prepare() {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void AskForLargeBuffers(int fd) {
  const int size = 4 << 20;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

size_t Fill(int fd, size_t piece = 65536) {
  static const std::vector<char> block(65536, 'x');
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  size_t filled = 0;
  for (ssize_t size; (size = ::write(fd, block.data(), piece)) > 0;) filled += static_cast<size_t>(size);
  return filled;
}

sockaddr_in Loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  return address;
}

sockaddr* Plain(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

Observation Tcp() {
  Prepare();
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback();
  socklen_t size = sizeof(address);
  if (::bind(listener, Plain(&address), size) != 0 || ::listen(listener, 16) != 0 ||
      ::getsockname(listener, Plain(&address), &size) != 0) {
    return NotApplicable("no loopback");
  }
  size_t held = 0;
  for (int i = 0; i < kMostSockets / 2 && held < kTaken; ++i) {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    AskForLargeBuffers(client);
    if (client < 0 || ::connect(client, Plain(&address), size) != 0 || ::accept(listener, nullptr, nullptr) < 0) break;
    held += Fill(client);
  }
  return Hold(held, "TCP sockets");
}

Observation Udp() {
  Prepare();
  size_t held = 0;
  for (int i = 0; i < kMostSockets && held < kTaken; ++i) {
    const int receiver = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int sender = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    AskForLargeBuffers(receiver);
    sockaddr_in address = Loopback();
    socklen_t size = sizeof(address);
    if (::bind(receiver, Plain(&address), size) != 0 || ::getsockname(receiver, Plain(&address), &size) != 0 ||
        ::connect(sender, Plain(&address), size) != 0) {
      break;
    }
    // The kernel silently drops packets that do not fit, so the queued bytes are queried.
    static const std::vector<char> block(60'000, 'x');
    int waiting = 0;
    socklen_t length = sizeof(waiting);
    ::getsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &waiting, &length);
    for (size_t sent = 0; sent < static_cast<size_t>(waiting); sent += block.size())
      (void)!::send(sender, block.data(), block.size(), 0);
    ::close(sender);
    uint32_t memory[9] = {};
    length = sizeof(memory);
    if (::getsockopt(receiver, SOL_SOCKET, SO_MEMINFO, memory, &length) != 0) return NotApplicable("no SO_MEMINFO");
    held += memory[0];
  }
  return Hold(held, "UDP sockets");
}

// Answers of the kernel that are never read.
Observation Netlink() {
  Prepare();
  size_t held = 0;
  for (int i = 0; i < kMostSockets && held < kTaken; ++i) {
    const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0) break;
    AskForLargeBuffers(fd);
    struct {
      nlmsghdr header;
      ifinfomsg link;
    } question{};
    question.header.nlmsg_len = sizeof(question);
    question.header.nlmsg_type = RTM_GETLINK;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    question.link.ifi_index = 1;
    uint32_t memory[9] = {}, before = 1;
    while (memory[0] != before) {
      before = memory[0];
      for (int turn = 0; turn < 50; ++turn) (void)!::send(fd, &question, sizeof(question), 0);
      socklen_t length = sizeof(memory);
      if (::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &length) != 0) return NotApplicable("no SO_MEMINFO");
    }
    held += memory[0];
  }
  return Hold(held, "netlink sockets");
}

Observation Unix(bool close_senders, int type) {
  Prepare();
  size_t held = 0;
  for (int i = 0; i < kMostSockets && held < kTaken; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return Blocked(errno);
    AskForLargeBuffers(ends[0]);
    held += Fill(ends[0]);
    if (close_senders) ::close(ends[0]);
  }
  return Hold(held, "unix sockets");
}

Observation UnixStream() { return Unix(false, SOCK_STREAM); }
// The kernel charges the bytes to the sender, which has ended.
Observation UnixClosed() { return Unix(true, SOCK_STREAM); }
Observation UnixDatagrams() { return Unix(true, SOCK_DGRAM); }

const ParkedSetup kKilled = {.death = Death::kRequired, .reports = {{"MemoryLimitViolation", "limit.mem"}}};
const std::vector<std::string> kFlags = {"--memory", "64M"};

const Registration kRow(Row{
    .id = "F15",
    .title = "memory that waits in TCP, UDP, unix and netlink sockets",
    .severity = Severity::kHostDenial,
    .walls = {"socket memory"},
    .attempts = {{.name = "tcp", .probe = Tcp, .expect = kKilled, .flags = kFlags},
                 {.name = "udp", .probe = Udp, .expect = kKilled, .flags = kFlags},
                 {.name = "netlink", .probe = Netlink, .expect = kKilled, .flags = kFlags},
                 {.name = "unix", .probe = UnixStream, .expect = kKilled, .flags = kFlags},
                 {.name = "unix_closed", .probe = UnixClosed, .expect = kKilled, .flags = kFlags},
                 {.name = "unix_datagrams",
                  .probe = UnixDatagrams,

                  .expect = kKilled,
                  .flags = kFlags}},
});

}  // namespace

}  // namespace caisson::escape
