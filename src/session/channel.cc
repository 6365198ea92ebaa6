#include "session/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "verify/json_reader.h"

namespace caisson::session {

namespace {

struct Head {
  uint32_t body_bytes = 0;
  uint32_t fds = 0;
};

}  // namespace

Channel::Channel(UniqueFd socket) : socket_(std::move(socket)) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

Status Channel::Send(const nlohmann::json& body, std::vector<UniqueFd> fds) {
  const std::string text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxMessageBytes || fds.size() > kMaxMessageFds)
    return Error::Invalid("a message of the session protocol is too large");
  const Head head{static_cast<uint32_t>(text.size()), static_cast<uint32_t>(fds.size())};
  Outgoing outgoing;
  outgoing.bytes.assign(reinterpret_cast<const char*>(&head), sizeof(head));
  outgoing.bytes += text;
  outgoing.fds = std::move(fds);
  queued_bytes_ += outgoing.bytes.size();
  queue_.push_back(std::move(outgoing));
  // An end that never reads costs no more than this.
  if (queued_bytes_ > 2 * kMaxMessageBytes) return Error::Exhausted("the other end does not read its messages");
  return Flush();
}

Status Channel::Flush() {
  while (!queue_.empty()) {
    Outgoing& outgoing = queue_.front();
    struct iovec part {};
    part.iov_base = outgoing.bytes.data() + outgoing.sent;
    part.iov_len = outgoing.bytes.size() - outgoing.sent;
    struct msghdr message {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(struct cmsghdr) std::array<char, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control{};
    if (outgoing.sent == 0 && !outgoing.fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(outgoing.fds.size() * sizeof(int));
      struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(outgoing.fds.size() * sizeof(int));
      for (size_t i = 0; i < outgoing.fds.size(); ++i) {
        const int fd = outgoing.fds[i].get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(fd));
      }
    }
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (count < 0) return Error::System(errno, "send to the session's socket");
    outgoing.fds.clear();
    outgoing.sent += static_cast<size_t>(count);
    if (outgoing.sent < outgoing.bytes.size()) continue;
    queued_bytes_ -= outgoing.bytes.size();
    queue_.pop_front();
  }
  return {};
}

Result<bool> Channel::Receive() {
  std::array<char, 65536> buffer;
  while (received_.size() < kMaxMessageBytes + sizeof(Head)) {
    struct iovec part {};
    part.iov_base = buffer.data();
    part.iov_len = buffer.size();
    alignas(struct cmsghdr) std::array<char, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control{};
    struct msghdr message {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count < 0) return Error::System(errno, "receive from the session's socket");
    for (struct cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < fds; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
        received_fds_.emplace_back(fd);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) return Error::Invalid("too many descriptors in a message");
    if (count == 0) return false;
    received_.append(buffer.data(), static_cast<size_t>(count));
    if (received_fds_.size() > 4 * kMaxMessageFds) return Error::Invalid("too many descriptors in messages");
  }
  return true;
}

Result<std::optional<Message>> Channel::Take() {
  Head head;
  if (received_.size() < sizeof(head)) return std::optional<Message>();
  std::memcpy(&head, received_.data(), sizeof(head));
  if (head.body_bytes > kMaxMessageBytes || head.fds > kMaxMessageFds)
    return Error::Invalid("a message of the session protocol is too large");
  if (received_.size() < sizeof(head) + head.body_bytes) return std::optional<Message>();
  if (received_fds_.size() < head.fds) return Error::Invalid("a message of the session protocol lacks descriptors");
  verify::JsonBounds bounds;
  bounds.max_bytes = kMaxMessageBytes;
  CAISSON_TRY(nlohmann::json body,
              verify::ReadJson(std::string_view(received_).substr(sizeof(head), head.body_bytes), bounds));
  if (!body.is_object()) return Error::Invalid("a message of the session protocol is not an object");
  Message message;
  message.body = std::move(body);
  for (uint32_t i = 0; i < head.fds; ++i) {
    message.fds.push_back(std::move(received_fds_.front()));
    received_fds_.pop_front();
  }
  received_.erase(0, sizeof(head) + head.body_bytes);
  return std::optional<Message>(std::move(message));
}

}  // namespace caisson::session
