// Measures the bytes in the queues of the sockets of one network namespace.
//
// Runs: supervisor. Where a cgroup counts memory, only netlink queues are measured, because they are charged to no
// cgroup; elsewhere all queues are.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace caisson::sandbox {

// Bytes that wait in netlink sockets, from the list in /proc/1/net below `proc`; 0 while there are too few sockets to
// matter. -1 when the list cannot be read.
int64_t NetlinkQueueBytes(int proc);

class SocketMeter {
 public:
  // `diagnosis`: a NETLINK_SOCK_DIAG socket made in that namespace, or none.
  SocketMeter(int proc, UniqueFd diagnosis);
  bool valid() const { return diagnosis_.valid(); }
  // Bytes in Unix, TCP, UDP and netlink sockets; 0 when so few exist that together they cannot hold a tenth of `limit`.
  // -1 when the kernel does not provide the numbers.
  int64_t Bytes(int64_t limit);

 private:
  int64_t BytesOfFamily(int family, int protocol);

  int proc_;
  UniqueFd diagnosis_;
  int64_t most_sent_ = 0, most_per_socket_ = 0;  // the largest buffers that this host allows
  uint32_t sequence_ = 0;
};

}  // namespace caisson::sandbox
