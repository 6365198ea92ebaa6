#include "base/stop.h"

#include <sys/socket.h>

#include <cerrno>

namespace caisson {

Result<StopSource> StopSource::Make() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return Error::System(errno, "make a way to stop a command");
  return StopSource(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

void StopSource::Signal(int signal) const {
  // One that finds the queue full is lost, as the kernel merges a signal that is already pending.
  (void)::send(theirs_.get(), &signal, sizeof(signal), MSG_NOSIGNAL);
}

// By the end of the queue and not by a record in it: it needs no room there, and is still to be seen after it was read.
void StopSource::Stop() const { (void)::shutdown(theirs_.get(), SHUT_WR); }

std::optional<StopRequest> StopSource::Take() const {
  int signal = 0;
  const ssize_t size = ::recv(ours_.get(), &signal, sizeof(signal), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  return StopRequest{size == sizeof(signal) ? signal : 0};
}

}  // namespace caisson
