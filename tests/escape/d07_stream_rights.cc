// When a caller's stream is a socket, descriptors and credentials travel over it, in both directions.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// One byte with a descriptor.
long Send(int socket, int sent) {
  char byte = 'x';
  struct iovec data {
    &byte, 1
  };
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = rights;
  message.msg_controllen = sizeof(rights);
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  ::memcpy(CMSG_DATA(header), &sent, sizeof(sent));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

// The descriptor that came, or the negative errno.
int Receive(int socket, int flags) {
  char byte = 0;
  struct iovec data {
    &byte, 1
  };
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = rights;
  message.msg_controllen = sizeof(rights);
  if (::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC) < 0) return -errno;
  const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -ENOMSG;
  int received = -1;
  ::memcpy(&received, CMSG_DATA(header), sizeof(received));
  return received;
}

// On every stream, both ways. Standard input is the caller's socket.
Observation Exchange() {
  int received = -ENOTSOCK;
  std::string sent;
  for (int stream = 0; stream < 3; ++stream) {
    struct stat info {};
    if (::fstat(stream, &info) == 0 && S_ISSOCK(info.st_mode)) sent += " " + std::to_string(stream) + " is a socket";
    if (received < 0) received = Receive(stream, MSG_DONTWAIT);
    if (Send(stream, 2) == 0) sent += " sent by " + std::to_string(stream);
  }
  if (received >= 0) return Escaped("took a directory of the caller;" + sent);
  return sent.empty() ? Blocked(-received) : Partial(sent);
}

// To say that one is PID 1, or root, to whoever asks the kernel.
Observation Credentials() {
  int ends[2];
  const int on = 1;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
      ::setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return NotApplicable("no socket pair");
  }
  char byte = 'x';
  struct iovec data {
    &byte, 1
  };
  struct ucred claimed {
    1, 0, 0
  };
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(claimed))] = {};
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_CREDENTIALS;
  header->cmsg_len = CMSG_LEN(sizeof(claimed));
  ::memcpy(CMSG_DATA(header), &claimed, sizeof(claimed));
  return ::sendmsg(ends[0], &message, 0) == 1 ? Escaped("spoke as PID 1") : Blocked(errno);
}

struct Pair {
  UniqueFd ours, theirs;
};

// With a directory of the host on its way, as a careless service would leave it.
Pair MakePair(const std::string& directory) {
  Pair pair;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return pair;
  pair.ours.Reset(ends[0]);
  pair.theirs.Reset(ends[1]);
  const UniqueFd sent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (Send(pair.ours.get(), sent.get()) != 0) pair.theirs.Reset();
  return pair;
}

Judgement JudgeExchange(Host& host) {
  {
    Pair pair = MakePair(host.directory());
    Outcome bare;
    bare.process = Process::Start({.argv = host.ControlCommand("D07/exchange"), .standard_input = pair.theirs.get()})
                       .Finish(kPatienceMs);
    const auto saw = bare.Saw("D07/exchange");
    const UniqueFd returned(Receive(pair.ours.get(), MSG_DONTWAIT));
    if (!saw || saw->seen != Seen::kEscaped || !returned) return Vacuous("bare, nothing travels either");
  }
  Pair pair = MakePair(host.directory());
  const Outcome run = host.Run({.command = host.ProbeCommand("D07/exchange"), .standard_input = pair.theirs.get()});
  const auto inside = run.Saw("D07/exchange");
  const UniqueFd returned(Receive(pair.ours.get(), MSG_DONTWAIT));
  if (!inside) return Broken("the probe said nothing: " + run.process.err);
  if (inside->seen != Seen::kBlocked || inside->error != ENOTSOCK) return Broken(inside->detail);
  if (returned) return Broken("a descriptor came out");
  return Held("the streams are pipes");
}

const Registration kRow(Row{
    .id = "D07",
    .title = "descriptors over a stream that is a socket; false credentials",
    .severity = Severity::kEscape,
    .walls = {"streams are pipes or an own terminal", "capabilities"},
    .attempts = {{.name = "credentials", .probe = Credentials, .expect = {.errnos = {EPERM, EINVAL}}},
                 {.name = "exchange", .probe = Exchange, .judge_only = true}},
    .judge = JudgeExchange,
});

}  // namespace

}  // namespace caisson::escape
