// When a caller's stream is a socket, descriptors and credentials travel over it, in both directions.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "escape/host.h"
#include "escape/message.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// On every stream, both ways. Standard input is the caller's socket.
Observation Exchange() {
  int received = -ENOTSOCK;
  std::string sent;
  for (int stream = 0; stream < 3; ++stream) {
    struct stat info {};
    if (::fstat(stream, &info) == 0 && S_ISSOCK(info.st_mode)) sent += " " + std::to_string(stream) + " is a socket";
    if (received < 0) received = ReceiveDescriptor(stream, MSG_DONTWAIT);
    if (SendDescriptors(stream, {2}) == 0) sent += " sent by " + std::to_string(stream);
  }
  if (received >= 0) return Escaped("took a directory of the caller;" + sent);
  return sent.empty() ? Blocked(-received) : Partial(sent);
}

// Claims to be PID 1, or root, in the credentials that the receiver reads from the kernel.
Observation Credentials() {
  int ends[2];
  const int on = 1;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
      ::setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return NotApplicable("no socket pair");
  }
  return FromCall(SendCredentials(ends[0], 1, 0, 0), "spoke as PID 1");
}

struct Pair {
  UniqueFd ours, theirs;
};

// With a descriptor of a host directory in transit, as a careless service would leave it.
Pair MakePair(const std::string& directory) {
  Pair pair;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return pair;
  pair.ours.Reset(ends[0]);
  pair.theirs.Reset(ends[1]);
  const UniqueFd sent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (SendDescriptors(pair.ours.get(), {sent.get()}) != 0) pair.theirs.Reset();
  return pair;
}

Judgement JudgeExchange(Host& host) {
  {
    Pair pair = MakePair(host.directory());
    Outcome bare;
    bare.process = Process::Start({.argv = host.ControlCommand("D07/exchange"), .standard_input = pair.theirs.get()})
                       .Finish(kPatienceMs);
    const auto saw = bare.Saw("D07/exchange");
    const UniqueFd returned(ReceiveDescriptor(pair.ours.get(), MSG_DONTWAIT));
    if (!saw || saw->seen != Seen::kEscaped || !returned) return Vacuous("bare, nothing travels either");
  }
  Pair pair = MakePair(host.directory());
  const Outcome run = host.Run({.command = host.ProbeCommand("D07/exchange"), .standard_input = pair.theirs.get()});
  const auto inside = run.Saw("D07/exchange");
  const UniqueFd returned(ReceiveDescriptor(pair.ours.get(), MSG_DONTWAIT));
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
