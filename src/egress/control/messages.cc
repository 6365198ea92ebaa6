#include "egress/control/messages.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace caisson::egress::control {

Kind Frame::kind() const { return static_cast<Kind>(bytes.empty() ? 0 : bytes[0]); }

Status SendFrame(int socket, std::string_view bytes, const std::vector<int>& fds, int flags) {
  if (fds.size() > kMaxFrameFds || bytes.size() > kMaxFrameBytes) return Error::Invalid("a frame is too large");
  struct iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMaxFrameFds)] = {};
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = room;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    if (::sendmsg(socket, &message, flags | MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return Error::System(errno, "send a frame");
  }
}

Result<Frame> ReceiveFrame(int socket, int flags) {
  Frame frame;
  frame.bytes.resize(kMaxFrameBytes);
  struct iovec part = {frame.bytes.data(), frame.bytes.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMaxFrameFds)];
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  ssize_t size = -1;
  do size = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size < 0) return Error::System(errno, "receive a frame");
  for (struct cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + CMSG_LEN(0) + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
      frame.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Error::Invalid("a frame is too large");
  frame.bytes.resize(static_cast<size_t>(size));
  return frame;
}

}  // namespace caisson::egress::control
