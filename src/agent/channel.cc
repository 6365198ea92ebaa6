#include "agent/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace caisson::agent {

Channel::Channel(int input, int output) : input_(input), output_(output) {
  for (const int fd : {input, output}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void Channel::Send(Kind kind, std::string_view body) {
  pending_ += Pack(kind, body);
  Flush();
}

void Channel::Send(Kind kind, const Result<std::string>& body) {
  if (body)
    Send(kind, std::string_view(*body));
  else
    Send(Kind::kError, std::string_view(Encode(body.error())));
}

bool Channel::Flush() {
  while (sent_ < pending_.size()) {
    const ssize_t size = ::write(output_, pending_.data() + sent_, pending_.size() - sent_);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    sent_ += static_cast<size_t>(size);
  }
  pending_.clear();
  sent_ = 0;
  return true;
}

bool Channel::FlushAll() {
  while (has_pending()) {
    struct pollfd wait {
      output_, POLLOUT, 0
    };
    if (::poll(&wait, 1, -1) < 0 && errno != EINTR) return false;
    if (!Flush()) return false;
  }
  return true;
}

bool Channel::Fill() {
  char chunk[kPieceBytes];
  for (int turns = 0; turns < 16; ++turns) {
    const ssize_t size = ::read(input_, chunk, sizeof(chunk));
    if (size == 0) return false;
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    reader_.Append({chunk, static_cast<size_t>(size)});
    if (static_cast<size_t>(size) < sizeof(chunk)) return true;
  }
  return true;
}

Result<Frame> Channel::Await() {
  for (;;) {
    CAISSON_TRY(std::optional<Frame> frame, Next());
    if (frame) return *std::move(frame);
    struct pollfd waits[] = {{input_, POLLIN, 0}, {has_pending() ? output_ : -1, POLLOUT, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return Error::System(errno, "wait for a frame");
    if (waits[1].revents != 0 && !Flush()) return Error::System(EPIPE, "the runtime outside is gone");
    if (waits[0].revents != 0 && !Fill()) return Error::System(ECONNRESET, "the runtime outside is gone");
  }
}

}  // namespace caisson::agent
