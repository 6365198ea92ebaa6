// A container that another program made, with caisson-agent as its PID 1: what a runtime of this kind has to provide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/protocol.h"
#include "base/result.h"
#include "base/violation.h"
#include "sandbox/limit_group.h"

namespace caisson::runtime::witnessed {

// What the walls outside say about a container that has ended.
struct OuterEnd {
  bool memory_limit = false;  // they ended a process inside because the container used all of its memory
  std::vector<std::pair<std::string, EvidenceValue>> evidence;
};

class Container {
 public:
  // Ends and removes everything, and returns when nothing is left.
  virtual ~Container() = default;

  // Readable when bytes of the agent have arrived or the stream has ended.
  virtual int input() const = 0;
  // Writable when the agent can be sent more.
  virtual int output() const = 0;
  // Passes on what has arrived, without waiting. False: the stream has ended.
  virtual Result<bool> Read(agent::FrameReader& frames) = 0;
  // Sends what can be sent without waiting, and returns how much that was.
  virtual Result<size_t> Write(std::string_view bytes) = 0;

  // The counters of the container's cgroup, read from outside. Absent where they cannot be read from outside; an error
  // where they should be and cannot.
  virtual Result<std::optional<sandbox::GroupCounters>> ReadCounters() = 0;
  // Makes peak_memory_bytes count from now on; false when it cannot be done.
  virtual bool RestartMemoryPeak() { return false; }

  // How long the agent may take to answer for the first time, and to tell of a command's end after its limit.
  virtual int64_t start_ms() const { return 30'000; }
  virtual int64_t grace_ms() const { return 2'000; }
  // Readable when the run's TakeViolations has something to return; -1: it is asked now and then.
  virtual int attention() const { return -1; }

  // Ends every process inside and waits until they are gone. The counters can still be read.
  virtual void Kill() = 0;
  // After Kill. An error when something else than the workload and this process has ended the container, such as an
  // eviction.
  virtual Result<OuterEnd> ReadEnd() { return OuterEnd(); }
};

}  // namespace caisson::runtime::witnessed
