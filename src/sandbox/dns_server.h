// Receives a sandbox's name look-ups: a datagram socket and a listener, both bound inside to the address that
// /etc/resolv.conf names. This class moves packets and does not interpret them (see sandbox/dns.h).
//
// SECURITY: the peer is the workload. It can hold at most kMaxConnections connections and kMaxQuery bytes of each, and
// this class never waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "linux/event_loop.h"

namespace caisson::sandbox {

class DnsServer {
 public:
  // Returns the answer to a query; may be empty.
  using Answer = std::function<std::vector<uint8_t>(std::span<const uint8_t> query)>;

  DnsServer(UniqueFd datagrams, UniqueFd listener);

  // Readable when there is something to do.
  int fd() const { return loop_.fd(); }
  // Handles what is ready, without waiting.
  void Serve(const Answer& answer);
  // Serves the queries that are still queued when no sender is left.
  void Drain(const Answer& answer);
  // Queries that the kernel dropped since the socket was made, because they arrived faster than they were served; -1
  // when the kernel does not report it.
  int64_t dropped() const;

 private:
  static constexpr size_t kMaxConnections = 8;
  static constexpr size_t kMaxQuery = 1024;

  struct Connection {
    UniqueFd fd;
    std::vector<uint8_t> received;  // includes the two bytes in front that hold the query's length
  };
  void ServeDatagram(const Answer& answer) const;
  void Accept();
  void ServeConnection(Connection& connection, const Answer& answer);

  linux_sys::EventLoop loop_;
  UniqueFd datagrams_, listener_;
  std::vector<Connection> connections_{kMaxConnections};
};

}  // namespace caisson::sandbox
