// Measures the sandbox's process tree through its own /proc, for machines where no cgroup counts it.
//
// Memory that cannot be measured never counts as zero: a process whose mappings may not be read counts with all of its
// resident memory, and a process whose descriptors may not be read is reported as unmeasured.
//
// An ordinary user cannot measure three kinds of memory, and the record names them: pages of a shared mapping or memory
// file that no process has mapped or open any more but a mapping or queue still keeps, the contents of pipes within the
// user's own allowance, and the kernel's small objects.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sandbox/socket_meter.h"

namespace caisson::sandbox {

struct TreeMeasure {
  int64_t tasks = 0;           // threads of every process but PID 1
  int64_t resident_bytes = 0;  // sum over processes: a page shared by several counts once for each
  int64_t table_bytes = 0;     // page tables
  int64_t cpu_ms = 0;          // of every process, including ended ones, as far as they were seen or reaped
};

struct MemoryMeasure {
  int64_t bytes = 0;          // of everything below, and of the mappings of processes
  int64_t table_bytes = 0;    // page tables
  int64_t file_bytes = 0;     // memory files that a process has open
  int64_t segment_bytes = 0;  // System V shared memory, attached or not
  int64_t socket_bytes = 0;
  int64_t pipe_bytes = 0;
  int64_t unmeasured = 0;  // processes that stayed closed to the supervisor longer than any ordinary process does
};

class TreeMeter {
 public:
  struct Views {
    UniqueFd proc;       // of the sandbox's pid namespace, hiding no process
    UniqueFd segments;   // its /proc/sysvipc/shm; none: not measured
    UniqueFd diagnosis;  // its NETLINK_SOCK_DIAG socket; none: not measured
    dev_t scratch = 0;   // its file system counts its own pages
  };
  explicit TreeMeter(Views views);

  TreeMeasure Measure();
  // Tasks that were alive at one moment: those found by two measurements in a row. A single measurement may count both
  // an ended process and its successor. Slower; used when the quick sum is too big.
  int64_t TasksAtOnce() const;
  // All memory of the tree, given the quick measure and the bytes in scratch. Exact only near `limit`. The search for
  // memory that no process maps happens every kUnmappedIntervalMs, and less often when it takes long.
  MemoryMeasure Memory(const TreeMeasure& quick, int64_t scratch_bytes, int64_t limit);

 private:
  using Files = std::map<ino_t, int64_t>;  // on the kernel's own file system for memory files: inode, bytes
  struct Descriptors {
    Files files;
    std::set<ino_t> pipes;
    std::set<int64_t> closed;  // processes that the supervisor may not inspect
  };
  struct Mapped {
    int64_t bytes = 0;         // proportional: shared pages counted once
    int64_t shared_bytes = 0;  // of them, pages of memory files, segments, scratch and shared anonymous mappings
  };

  struct Process {
    std::string pid;
    std::string path;   // below /proc, of a thread that has the process's memory
    std::string stat;   // of that thread
    std::string whole;  // stat of the process, with the time of all its threads
  };

  template <typename Visit>
  void ForEachEntry(const char* directory, Visit visit) const;
  template <typename Visit>
  void ForEachProcess(Visit visit) const;
  // The kernel reaps a process whose parent ignores SIGCHLD, and adds its time to no other process. This keeps the time
  // that such a process had used when it was last seen.
  struct LastSeen {
    int64_t started = 0;
    int64_t ticks = 0;
  };
  std::map<std::string, LastSeen> last_seen_;
  int64_t ended_ticks_ = 0;
  std::optional<Process> Find(const std::string& pid) const;  // none: it has ended
  int64_t ResidentBytes(const std::string& pid) const;
  // Processes that run in the memory of another process.
  std::set<std::string> BorrowersOfMemory() const;
  Mapped ProportionalBytes(const std::set<std::string>& borrowers) const;
  // The same without the mappings of files that are counted as files.
  int64_t BytesOfOwnMappings(const std::set<std::string>& borrowers) const;
  int64_t ExactBytes(int64_t kernel, int64_t files, int64_t limit) const;
  // Inspects the processes above `after` and adds what it finds. Returns the last process it inspected, or 0 when it
  // has inspected all. It stops early, because a tree may have a million descriptors and the clock must go on.
  int64_t LookAtDescriptors(int64_t after, Descriptors& found) const;
  void LookIntoProcesses(int64_t limit);
  void NoteClosed(const std::set<int64_t>& closed);
  bool LookForUnmapped(int64_t limit);  // false: the next search is not due
  Files Segments() const;

  Views views_;
  SocketMeter sockets_;
  dev_t memory_files_ = 0;  // the device of the kernel's own file system for memory files
  int64_t next_look_ns_ = 0;
  Files files_, segments_;  // as last seen
  int64_t socket_bytes_ = 0, pipe_bytes_ = 0;
  int sockets_unmeasured_ = 0;  // looks in a row
  Descriptors looking_;         // found so far, in a tree that needs several calls
  int64_t looked_up_to_ = 0;
  std::map<int64_t, int64_t> closed_since_;  // processes that may not be inspected, and when that was first seen
  int64_t last_open_ns_ = 0;                 // when there was none
  int64_t unmeasured_ = 0;
};

}  // namespace caisson::sandbox
