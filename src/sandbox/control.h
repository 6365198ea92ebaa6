// The messages between supervisor and PID 1, over one seqpacket pair. Fixed-size plain structs, one per packet; both
// ends are the same program, forked, so there is nothing to parse. The workload never holds this socket.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

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

// PID 1 to supervisor.
struct Report {
  enum Kind : uint32_t {
    kStepFailed,      // step, error
    kReady,           // descriptors
    kExecFailed,      // error; sent by the workload's process itself before it becomes the workload
    kCommandStarted,  // pid
    kCommandEnded,    // wait_status, left_processes
  };
  Kind kind;
  int32_t step;
  int32_t error;
  int32_t wait_status;
  uint32_t left_processes;
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

}  // namespace caisson::sandbox
