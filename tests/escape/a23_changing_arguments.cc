// Arguments that another thread switches while the supervisor reads them, so that supervisor and kernel see different
// values. Attempts that the walls refuse must be recorded all the same.
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "escape/outside_peer.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr int kTries = 3000;

// Copies one of two values over a third, without end.
struct Flipper {
  char values[2][64] = {};
  char shown[64] = {};
  size_t size = 0;
  std::atomic<bool> stop{false};
};

void* Flip(void* argument) {
  auto& flipper = *static_cast<Flipper*>(argument);
  for (unsigned turn = 0; !flipper.stop; ++turn) {
    std::memcpy(flipper.shown, flipper.values[turn % 2], flipper.size);
    for (volatile unsigned wait = 0; wait < turn % 257 * 8; wait = wait + 1) {
    }
  }
  return nullptr;
}

template <typename Try>
Observation Race(Flipper& flipper, const Try& attempt, int refusal) {
  std::memcpy(flipper.shown, flipper.values[0], flipper.size);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, Flip, &flipper) != 0) return NotApplicable("no thread");
  int refused = 0, worked = 0;
  for (int i = 0; i < kTries; ++i) {
    const long result = attempt();
    refused += result == -refusal ? 1 : 0;
    worked += result >= 0 ? 1 : 0;
  }
  flipper.stop = true;
  ::pthread_join(thread, nullptr);
  if (refused == 0) return worked == kTries ? Escaped("every call worked") : NotApplicable("no call was refused");
  return Blocked(refusal, std::to_string(refused) + " of " + std::to_string(kTries) + " calls were refused");
}

Observation Path() {
  static Flipper flipper;
  const std::string own = WritableDirectory() + "/a";
  const std::string other = IsControl() ? WritableDirectory() + "/b" : "/usr/b";
  flipper.size = sizeof(flipper.shown);
  std::strcpy(flipper.values[0], own.c_str());
  std::strcpy(flipper.values[1], other.c_str());
  // The names differ somewhere in the middle: half-copied ones are other names in one of the two places.
  return Race(
      flipper,
      [] {
        const long fd = Call(SYS_open, flipper.shown, O_WRONLY | O_CREAT, 0600);
        if (fd >= 0) ::close(static_cast<int>(fd));
        return fd == -ENOENT || fd == -EACCES ? 0 : fd;
      },
      EROFS);
}

Observation Peer() {
  if (!MakeOutsidePeerReachable()) return NotApplicable("no address can be added");
  static Flipper flipper;
  struct sockaddr_in here = OutsidePeer();
  const struct sockaddr_in peer = OutsidePeer();
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  flipper.size = sizeof(peer);
  std::memcpy(flipper.values[0], &here, sizeof(here));
  std::memcpy(flipper.values[1], &peer, sizeof(peer));
  const int fd = Datagram();
  return Race(
      flipper,
      [fd] {
        const long sent = Call(SYS_sendto, fd, "x", 1, 0, flipper.shown, sizeof(sockaddr_in));
        return sent == -ECONNREFUSED ? 0 : sent;
      },
      ENETUNREACH);
}

const Registration kRow(Row{
    .id = "A23",
    .title = "arguments that another thread changes while they are looked at",
    .severity = Severity::kIntegrity,
    .walls = {"observer", "network namespace"},
    .attempts = {{.name = "path",
                  .probe = Path,
                  .expect = {.errnos = {EROFS}, .reports = {{"FilesystemWriteViolation", "fs.write", "open"}}}},
                 {.name = "peer",
                  .probe = Peer,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {ENETUNREACH},
                             .reports = {{"NetworkAccessViolation", "net.send", "sendto", true},
                                         {"NetworkAccessViolation", "net.unrouted", "", true}},
                             .failure_class = "NetworkAccessViolation"}}},
});

}  // namespace

}  // namespace caisson::escape
