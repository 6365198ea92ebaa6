#include "runtime/witnessed/pipes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace caisson::runtime::witnessed {

// Sockets and not pipes, so that writing to an agent that is gone raises no signal in this process.
Result<AgentPipes> PipedContainer::MakePipes() {
  int to[2], from[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to) != 0)
    return Error::System(errno, "make a stream to the agent");
  to_agent_ = UniqueFd(to[0]);
  AgentPipes pipes;
  pipes.input = UniqueFd(to[1]);
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, from) != 0)
    return Error::System(errno, "make a stream from the agent");
  from_agent_ = UniqueFd(from[0]);
  pipes.output = UniqueFd(from[1]);
  for (const int fd : {to_agent_.get(), from_agent_.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return pipes;
}

Result<UniqueFd> PipedContainer::MakeSocket() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::System(errno, "make a stream to the agent");
  to_agent_ = UniqueFd(ends[0]);
  UniqueFd theirs(ends[1]);
  from_agent_ = UniqueFd(::fcntl(to_agent_.get(), F_DUPFD_CLOEXEC, 3));
  if (!from_agent_) return Error::System(errno, "copy a descriptor");
  return theirs;
}

Result<bool> PipedContainer::Read(agent::FrameReader& frames) {
  char chunk[size_t{64} << 10];
  for (int turns = 0; turns < 16; ++turns) {
    const ssize_t size = ::recv(from_agent_.get(), chunk, sizeof(chunk), MSG_DONTWAIT);
    if (size == 0) return false;
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size < 0 && errno == ECONNRESET) return false;
    if (size < 0) return Error::System(errno, "read from the agent");
    frames.Append({chunk, static_cast<size_t>(size)});
    if (frames.waiting() > agent::kMaxBodyBytes) return true;
  }
  return true;
}

Result<size_t> PipedContainer::Write(std::string_view bytes) {
  const ssize_t size = ::send(to_agent_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size >= 0) return static_cast<size_t>(size);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return bytes.size();  // the agent is gone, which the other direction tells
}

}  // namespace caisson::runtime::witnessed
