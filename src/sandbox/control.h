// The messages between supervisor and PID 1, over one seqpacket pair. Fixed-size plain structs, one per packet; both
// ends are forks of the same program, so there is nothing to parse. The workload never holds this socket.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace caisson::sandbox {

// Supervisor to PID 1, during set-up. Commands follow when PID 1 is ready (sandbox/command_order.h).
struct Order {
  enum Kind : uint32_t {
    kIdMapsWritten,
    kJoinCgroups,  // carries the descriptors of the v1 "tasks" files, if any
  };
  Kind kind;
};

// Supervisor to PID 1 in a live run, beside commands. PID 1 waits for signals, so the supervisor sends one after each
// packet (sandbox/live_init.h).
struct LiveOrder {
  enum Kind : uint32_t {
    kSignal,  // to the process group of a command
    kEnd,     // kills every process of a command
    kEndAll,  // kills every process but PID 1
    kStop,    // stops every process, and reports kStopped
    kGoOn,    // continues them
  };
  Kind kind;
  uint32_t command;
  int32_t signal;
};

inline constexpr size_t kMaxTaskFds = 4;

// Supervisor to a PID 1 that was created ahead, sent after the Spec: tells which mounts are sent beside it as
// descriptors. The workspace is the first of the mounts.
struct Handover {
  static constexpr size_t kMaxMounts = 64;
  uint32_t mounts;
  uint8_t has_mount[kMaxMounts];
};
inline constexpr size_t kMaxHandoverFds = Handover::kMaxMounts;

// PID 1 to supervisor.
struct Report {
  enum Kind : uint32_t {
    kStepFailed,    // step, error
    kAwaitsSpec,    // created ahead: every step that no request decides is done
    kReady,         // descriptors
    kExecFailed,    // error; sent by the workload's process itself before it becomes the workload
    kCommandEnded,  // wait_status, left_processes
    kStopped,       // answers LiveOrder::kStop: error, 0 when every process inside has stopped
  };
  Kind kind;
  int32_t step;
  int32_t error;
  int32_t mount;       // kStepFailed: the mount that failed (SetupContext::mount_at_work)
  uint32_t at_target;  // kStepFailed: the mount's target caused the failure
  uint32_t command;    // kExecFailed, kCommandEnded: the number of a live command; 0 otherwise
  int32_t wait_status;
  uint32_t left_processes;  // number of processes that had to be killed
  // kCommandEnded: of all processes that PID 1 reaped since the command began; of a live command: of its main process
  // and the children that this process waited for
  int64_t cpu_us;
  // kReady: descriptor numbers in PID 1's table, which the supervisor copies; -1 for none.
  int32_t root_fd, scratch_fd, workspace_fd, proc_fd, listener_fd, dns_fd, dns_listener_fd;
  int32_t segments_fd, diagnosis_fd;
};

// Supervisor: takes the next report; false, with errno, when there is none. If PID 1 ends with an order unread, the
// kernel reports a connection reset once, before the report that PID 1 still sent.
inline bool TakeReport(int control_fd, Report& report, int flags) {
  ssize_t size;
  do {
    size = ::recv(control_fd, &report, sizeof(report), flags);
  } while (size < 0 && (errno == EINTR || errno == ECONNRESET));
  if (size == 0) errno = ECHILD;
  return size == sizeof(report);
}

// Sends one packet with at most kMaxHandoverFds descriptors beside it; false with errno when it could not be sent
// whole.
inline bool SendPacket(int control_fd, struct iovec* parts, size_t part_count, const int* fds, size_t fd_count) {
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int) * kMaxHandoverFds)] = {};
  struct msghdr message {};
  message.msg_iov = parts;
  message.msg_iovlen = part_count;
  if (fd_count > 0) {
    message.msg_control = rights;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    std::memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
  }
  size_t size = 0;
  for (size_t i = 0; i < part_count; ++i) size += parts[i].iov_len;
  ssize_t sent;
  do {
    sent = ::sendmsg(control_fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(size);
}

inline bool SendWithDescriptors(int control_fd, const void* packet, size_t size, const int* fds, size_t count) {
  struct iovec data {
    const_cast<void*>(packet), size
  };
  return SendPacket(control_fd, &data, 1, fds, count);
}

// PID 1: takes a packet and its descriptors; returns its size, 0 when the supervisor has ended, -1 with errno.
inline ssize_t TakePacket(int control_fd, struct iovec* parts, size_t part_count, int (&fds)[kMaxHandoverFds],
                          int& fd_count, int flags = 0) {
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int) * kMaxHandoverFds)] = {};
  struct msghdr message {};
  message.msg_iov = parts;
  message.msg_iovlen = part_count;
  message.msg_control = rights;
  message.msg_controllen = sizeof(rights);
  fd_count = 0;
  const ssize_t received = ::recvmsg(control_fd, &message, MSG_CMSG_CLOEXEC | flags);
  if (received < 0) return -1;
  if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) return errno = ECONNABORTED, -1;
  const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return received;
  fd_count = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(fds, CMSG_DATA(header), static_cast<size_t>(fd_count) * sizeof(int));
  return received;
}

// PID 1: takes such a packet of exactly `size` bytes; returns the number of descriptors, or -1 with errno.
inline int TakeWithDescriptors(int control_fd, void* packet, size_t size, int (&fds)[kMaxHandoverFds]) {
  struct iovec data {
    packet, size
  };
  int count = 0;
  const ssize_t received = TakePacket(control_fd, &data, 1, fds, count);
  if (received < 0) return -1;
  // An empty read means that the supervisor has died.
  if (received != static_cast<ssize_t>(size)) return errno = ECONNABORTED, -1;
  return count;
}

}  // namespace caisson::sandbox
