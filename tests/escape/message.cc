#include "escape/message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace caisson::escape {

namespace {

// A message of one byte with room for `size` bytes beside it. Points into itself, so it stays where it is.
struct Envelope {
  explicit Envelope(size_t size) : control(CMSG_SPACE(size) / sizeof(struct cmsghdr) + 1) {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(size);
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  char byte = 'x';
  struct iovec data {
    &byte, 1
  };
  std::vector<struct cmsghdr> control;  // of headers, for their alignment
  struct msghdr header {};
};

long Send(int socket, int type, const void* payload, size_t size) {
  Envelope envelope(size);
  struct cmsghdr* beside = CMSG_FIRSTHDR(&envelope.header);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = type;
  beside->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(beside), payload, size);
  return ::sendmsg(socket, &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}

}  // namespace

long SendDescriptors(int socket, const std::vector<int>& descriptors) {
  return Send(socket, SCM_RIGHTS, descriptors.data(), descriptors.size() * sizeof(int));
}

int ReceiveDescriptor(int socket, int flags) {
  Envelope envelope(sizeof(int));
  if (::recvmsg(socket, &envelope.header, flags | MSG_CMSG_CLOEXEC) < 0) return -errno;
  const struct cmsghdr* beside = CMSG_FIRSTHDR(&envelope.header);
  if (beside == nullptr || beside->cmsg_type != SCM_RIGHTS) return -ENOMSG;
  int received = -1;
  std::memcpy(&received, CMSG_DATA(beside), sizeof(received));
  return received;
}

long SendCredentials(int socket, int pid, unsigned uid, unsigned gid) {
  const struct ucred claimed { pid, uid, gid };
  return Send(socket, SCM_CREDENTIALS, &claimed, sizeof(claimed));
}

}  // namespace caisson::escape
