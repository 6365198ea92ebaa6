// The messages between supervisor and PID 1, over one seqpacket pair. Fixed-size plain structs, one per packet; both
// ends are the same program, forked, so there is nothing to parse. The workload never holds this socket.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace caisson::sandbox {

// Supervisor to PID 1.
struct Order {
  enum Kind : uint32_t {
    kIdMapsWritten,
    kJoinCgroups,  // carries the descriptors of the v1 "tasks" files, if any
    kRunCommand,
  };
  Kind kind;
  uint32_t command;  // kRunCommand: index into Spec::commands
  uint32_t last;     // kRunCommand: no command follows; PID 1 may leave everything to the kernel when it ends
};

inline constexpr size_t kMaxTaskFds = 4;

// Supervisor to a PID 1 that was made ahead, behind the Spec: which descriptors come beside it. They are in this order:
// stdout and stderr unless there is a terminal, what is present of the commands' inputs, what is present of the mounts.
struct Handover {
  static constexpr size_t kMaxCommands = 64, kMaxMounts = 64;
  uint32_t has_output;
  uint32_t commands, mounts;  // mounts: the workspace is one of them, the first
  uint8_t has_input[kMaxCommands];
  uint8_t has_mount[kMaxMounts];
};
inline constexpr size_t kMaxHandoverFds = 2 + Handover::kMaxCommands + Handover::kMaxMounts;

// PID 1 to supervisor.
struct Report {
  enum Kind : uint32_t {
    kStepFailed,      // step, error
    kAwaitsSpec,      // made ahead: everything that no request decides is done
    kReady,           // descriptors
    kExecFailed,      // error; sent by the workload's process itself before it becomes the workload
    kCommandStarted,  // pid
    kCommandEnded,    // wait_status, left_processes
  };
  Kind kind;
  int32_t step;
  int32_t error;
  int32_t wait_status;
  uint32_t left_processes;  // that had to be killed
  // kReady: numbers in PID 1's descriptor table, for the supervisor to take copies of; -1 for none.
  int32_t root_fd, scratch_fd, workspace_fd, proc_fd, listener_fd, dns_fd, terminal_fd;
};

// Supervisor: takes the next report; false, with errno, when there is none. A PID 1 that ends with an order unread
// resets the connection, which is said once, before the report it still sent.
inline bool TakeReport(int control_fd, Report& report, int flags) {
  ssize_t size;
  do {
    size = ::recv(control_fd, &report, sizeof(report), flags);
  } while (size < 0 && (errno == EINTR || errno == ECONNRESET));
  if (size == 0) errno = ECHILD;
  return size == sizeof(report);
}

// One packet with descriptors beside it, at most kMaxHandoverFds; false with errno when it could not be sent.
inline bool SendWithDescriptors(int control_fd, const void* packet, size_t size, const int* fds, size_t count) {
  struct iovec data {
    const_cast<void*>(packet), size
  };
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int) * kMaxHandoverFds)] = {};
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = rights;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
  }
  return ::sendmsg(control_fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

// PID 1: takes such a packet of exactly `size` bytes; returns how many descriptors came, or -1 with errno.
inline int TakeWithDescriptors(int control_fd, void* packet, size_t size, int (&fds)[kMaxHandoverFds]) {
  struct iovec data {
    packet, size
  };
  alignas(struct cmsghdr) char rights[CMSG_SPACE(sizeof(int) * kMaxHandoverFds)] = {};
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = rights;
  message.msg_controllen = sizeof(rights);
  const ssize_t received = ::recvmsg(control_fd, &message, MSG_CMSG_CLOEXEC);
  if (received < 0) return -1;
  // An empty read is the supervisor's death.
  if (received != static_cast<ssize_t>(size) || (message.msg_flags & MSG_CTRUNC) != 0) return errno = ECONNABORTED, -1;
  const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return 0;
  const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  std::memcpy(fds, CMSG_DATA(header), count * sizeof(int));
  return static_cast<int>(count);
}

}  // namespace caisson::sandbox
