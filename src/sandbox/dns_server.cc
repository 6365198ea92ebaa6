#include "sandbox/dns_server.h"

#include <linux/sock_diag.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace caisson::sandbox {

namespace {

enum Tag : uint32_t { kDatagrams, kListener, kFirstConnection };

}  // namespace

DnsServer::DnsServer(UniqueFd datagrams, UniqueFd listener)
    : datagrams_(std::move(datagrams)), listener_(std::move(listener)) {
  loop_.Watch(datagrams_.get(), EPOLLIN, kDatagrams);
  if (listener_) loop_.Watch(listener_.get(), EPOLLIN, kListener);
}

void DnsServer::Serve(const Answer& answer) {
  for (const auto& event : loop_.Wait(0)) {
    if (event.data.u32 == kDatagrams) {
      ServeDatagram(answer);
    } else if (event.data.u32 == kListener) {
      Accept();
    } else {
      ServeConnection(connections_[event.data.u32 - kFirstConnection], answer);
    }
  }
}

void DnsServer::Drain(const Answer& answer) {
  // More turns than both queues can hold queries: no sender is left to add new ones.
  constexpr int kMostTurns = 4096;
  struct pollfd ready {
    loop_.fd(), POLLIN, 0
  };
  for (int turn = 0; turn<kMostTurns&& ::poll(&ready, 1, 0)> 0; ++turn) Serve(answer);
}

int64_t DnsServer::dropped() const {
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t size = sizeof(memory);
  if (::getsockopt(datagrams_.get(), SOL_SOCKET, SO_MEMINFO, memory, &size) != 0) return -1;
  return size > SK_MEMINFO_DROPS * sizeof(uint32_t) ? int64_t{memory[SK_MEMINFO_DROPS]} : -1;
}

void DnsServer::ServeDatagram(const Answer& answer) const {
  uint8_t packet[kMaxQuery];
  sockaddr_storage peer{};
  socklen_t peer_size = sizeof(peer);
  const ssize_t size = ::recvfrom(datagrams_.get(), packet, sizeof(packet), MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&peer), &peer_size);
  if (size < 0) return;
  const std::vector<uint8_t> reply = answer({packet, static_cast<size_t>(size)});
  if (reply.empty()) return;
  ::sendto(datagrams_.get(), reply.data(), reply.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&peer), peer_size);
}

void DnsServer::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  const auto unused = std::find_if(connections_.begin(), connections_.end(),
                                   [](const Connection& connection) { return !connection.fd.valid(); });
  // No resolver makes this many look-ups at once: closes the connection, as a busy server does.
  if (unused == connections_.end()) return;
  const auto index = static_cast<uint32_t>(unused - connections_.begin());
  loop_.Watch(fd.get(), EPOLLIN, kFirstConnection + index);
  *unused = {std::move(fd), {}};
}

void DnsServer::ServeConnection(Connection& connection, const Answer& answer) {
  uint8_t bytes[2 + kMaxQuery];
  std::vector<uint8_t>& received = connection.received;
  const ssize_t size = ::recv(connection.fd.get(), bytes, sizeof(bytes) - received.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) received.insert(received.end(), bytes, bytes + size);
  const bool ended = size <= 0;
  // One segment may carry several queries: the C library asks for both families at once.
  while (connection.fd) {
    const size_t length = received.size() < 2 ? 0 : static_cast<size_t>(received[0] << 8 | received[1]);
    const bool whole = received.size() >= 2 && received.size() >= 2 + length;
    // A truncated or oversized query is still examined as far as it arrived, for the record.
    const bool over = (!whole && ended) || length > kMaxQuery;
    if (!whole && !over) return;
    if (received.size() > 2) {
      const std::span<const uint8_t> query(received.data() + 2, std::min(received.size() - 2, length));
      std::vector<uint8_t> reply = answer(query);
      const size_t reply_size = reply.size();
      reply.insert(reply.begin(), {static_cast<uint8_t>(reply_size >> 8), static_cast<uint8_t>(reply_size & 0xff)});
      if (reply_size > 0) ::send(connection.fd.get(), reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (over) {
      connection = {};
    } else {
      received.erase(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(2 + length));
    }
  }
}

}  // namespace caisson::sandbox
