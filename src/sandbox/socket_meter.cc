#include "sandbox/socket_meter.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linux/files.h"

namespace caisson::sandbox {

namespace {

// The kernel charges every datagram that waits in a unix socket to its sender, and forgets the charge when the sender
// closes. At most this many may wait at one receiver (net.unix.max_dgram_qlen, and the one that is being added).
constexpr int64_t kDatagramsInQueue = 11;
// The supervisor's own sockets in that namespace: one for name look-ups, and one for the queries.
constexpr int64_t kOwnSockets = 2;

// The number behind `key` in the counters of the namespace of the sandbox's PID 1; -1 when they cannot be read.
int64_t Count(int proc, const char* file, std::string_view key) {
  const Result<std::string> text = linux_sys::ReadSmallFile(proc, file, 4096);
  if (!text) return -1;
  const size_t at = text->find(key);
  return at == std::string::npos ? -1 : std::atoll(text->c_str() + at + key.size());
}

int64_t SocketsInUse(int proc) { return Count(proc, "1/net/sockstat", "sockets: used "); }

int64_t LargestOf(const char* path) {
  const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, path, 256);
  if (!text) return 0;
  int64_t largest = 0;
  for (const char* at = text->c_str(); *at != '\0';) {
    char* end = nullptr;
    const int64_t number = std::strtoll(at, &end, 10);
    if (end == at) break;
    largest = std::max(largest, number);
    at = end;
  }
  return largest;
}

}  // namespace

int64_t NetlinkQueueBytes(int proc) {
  // A netlink socket holds at most the size of its receive buffer, which is megabytes on some hosts.
  constexpr int64_t kTooFewToMatter = 8;
  const int64_t in_use = SocketsInUse(proc);
  if (in_use < 0) return -1;
  if (in_use < kTooFewToMatter) return 0;
  const Result<std::string> text = linux_sys::ReadSmallFile(proc, "1/net/netlink", size_t{64} << 20);
  if (!text) return -1;
  // sk, protocol, port, groups, bytes received and not read, ...
  int64_t bytes = 0;
  for (size_t line = text->find('\n'); line != std::string::npos && ++line < text->size();) {
    const size_t end = std::min(text->find('\n', line), text->size());
    size_t at = line;
    for (int field = 0; field < 4 && at < end; ++field) {
      at = std::min(text->find(' ', at), end);
      at = std::min(text->find_first_not_of(' ', at), end);
    }
    if (at < end) bytes += std::atoll(text->c_str() + at);
    line = end < text->size() ? end : std::string::npos;
  }
  return bytes;
}

SocketMeter::SocketMeter(int proc, UniqueFd diagnosis) : proc_(proc), diagnosis_(std::move(diagnosis)) {
  if (!diagnosis_) return;
  // A program gets twice the buffer it asks for, in each direction.
  most_sent_ = 2 * LargestOf("/proc/sys/net/core/wmem_max");
  most_per_socket_ = most_sent_ + 2 * LargestOf("/proc/sys/net/core/rmem_max") +
                     LargestOf("/proc/sys/net/ipv4/tcp_rmem") + LargestOf("/proc/sys/net/ipv4/tcp_wmem");
}

int64_t SocketMeter::Bytes(int64_t limit) {
  if (!diagnosis_) return 0;
  const int64_t in_use = SocketsInUse(proc_);
  if (in_use < 0) return -1;
  if (in_use <= kOwnSockets || in_use * most_per_socket_ < limit / 10) return 0;
  int64_t bytes = NetlinkQueueBytes(proc_);
  if (bytes < 0) return -1;
  struct Kind {
    int family, protocol;
    const char *counts, *key;
    int64_t own;  // sockets that are not the workload's
  };
  for (const Kind& kind :
       {Kind{AF_UNIX, 0, nullptr, nullptr, 0}, Kind{AF_INET, IPPROTO_TCP, "1/net/sockstat", "TCP: inuse ", 0},
        Kind{AF_INET, IPPROTO_UDP, "1/net/sockstat", "UDP: inuse ", 1},
        Kind{AF_INET6, IPPROTO_TCP, "1/net/sockstat6", "TCP6: inuse ", 0},
        Kind{AF_INET6, IPPROTO_UDP, "1/net/sockstat6", "UDP6: inuse ", 0}}) {
    // Listing takes the kernel longer than counting: it walks the table of the whole host.
    if (kind.key != nullptr) {
      const int64_t count = Count(proc_, kind.counts, kind.key);
      if (count >= 0 && count <= kind.own) continue;
      if (count < 0 && kind.family == AF_INET6) continue;  // a kernel without IPv6
    }
    const int64_t part = BytesOfFamily(kind.family, kind.protocol);
    if (part < 0) return -1;
    bytes += part;
  }
  return bytes;
}

namespace {

struct Asked {
  nlmsghdr header;
  union {
    unix_diag_req unix_family;
    inet_diag_req_v2 inet;
  };
};

// The bytes that one socket holds. `most`: the most that a sender can have queued.
int64_t BytesOfSocket(const nlmsghdr& message, int64_t most) {
  const auto* family = static_cast<const unsigned char*>(NLMSG_DATA(&message));
  const bool local = *family == AF_UNIX;
  const size_t head = local ? sizeof(unix_diag_msg) : sizeof(inet_diag_msg);
  if (message.nlmsg_len < NLMSG_LENGTH(head)) return 0;
  size_t left = message.nlmsg_len - NLMSG_LENGTH(head);
  auto* attribute = reinterpret_cast<const rtattr*>(family + NLMSG_ALIGN(head));
  int64_t held = 0;
  bool has_peer = false, has_name = false, has_unread = false;
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    const int type = attribute->rta_type;
    const size_t size = RTA_PAYLOAD(attribute);
    uint32_t numbers[SK_MEMINFO_VARS] = {};
    std::memcpy(numbers, RTA_DATA(attribute), std::min(size, sizeof(numbers)));
    if (type == (local ? int{UNIX_DIAG_MEMINFO} : int{INET_DIAG_SKMEMINFO})) {
      // Bytes on their way out: a unix socket's wait in the receiver's queue, a TCP socket's in its own.
      held = int64_t{numbers[SK_MEMINFO_RMEM_ALLOC]} +
             std::max(numbers[SK_MEMINFO_WMEM_ALLOC], numbers[SK_MEMINFO_WMEM_QUEUED]);
    } else if (local && type == UNIX_DIAG_PEER) {
      has_peer = numbers[0] != 0;  // 0: it has closed
    } else if (local && type == UNIX_DIAG_NAME) {
      has_name = true;
    } else if (local && type == UNIX_DIAG_RQLEN) {
      has_unread = numbers[0] > 0;  // udiag_rqueue
    }
  }
  if (!local || !has_unread) return held;
  const auto* socket = reinterpret_cast<const unix_diag_msg*>(family);
  // Bytes that closed senders left behind are charged to no socket any more: they count as the possible maximum. For a
  // listener, "unread" counts connections. Only a socket with a name can receive from senders other than its peer.
  constexpr int kListens = 10;  // TCP_LISTEN
  if (socket->udiag_state == kListens || (has_peer && !has_name)) return held;
  if (socket->udiag_type == SOCK_DGRAM) return held + kDatagramsInQueue * most;
  return has_peer ? held : held + most;
}

}  // namespace

int64_t SocketMeter::BytesOfFamily(int family, int protocol) {
  Asked asked{};
  asked.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  asked.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  asked.header.nlmsg_seq = ++sequence_;
  if (family == AF_UNIX) {
    asked.header.nlmsg_len = NLMSG_LENGTH(sizeof(asked.unix_family));
    asked.unix_family.sdiag_family = AF_UNIX;
    asked.unix_family.udiag_states = ~0U;
    asked.unix_family.udiag_show = UDIAG_SHOW_MEMINFO | UDIAG_SHOW_RQLEN | UDIAG_SHOW_PEER | UDIAG_SHOW_NAME;
  } else {
    asked.header.nlmsg_len = NLMSG_LENGTH(sizeof(asked.inet));
    asked.inet.sdiag_family = static_cast<uint8_t>(family);
    asked.inet.sdiag_protocol = static_cast<uint8_t>(protocol);
    asked.inet.idiag_states = ~0U;
    asked.inet.idiag_ext = 1U << (INET_DIAG_SKMEMINFO - 1);
  }
  if (::send(diagnosis_.get(), &asked, asked.header.nlmsg_len, 0) != static_cast<ssize_t>(asked.header.nlmsg_len))
    return -1;
  int64_t bytes = 0;
  alignas(nlmsghdr) static char buffer[65536];
  for (;;) {
    // The kernel answers synchronously, so there is always something to read until it is done.
    const ssize_t received = ::recv(diagnosis_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (received <= 0) return -1;
    auto left = static_cast<unsigned>(received);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_seq != sequence_) continue;  // the rest of an abandoned answer
      if (message->nlmsg_type == NLMSG_DONE) return bytes;
      if (message->nlmsg_type == NLMSG_ERROR) return -1;
      bytes += BytesOfSocket(*message, most_sent_);
    }
  }
}

}  // namespace caisson::sandbox
