// A runtime turns a RunPlan into running commands and reports what became of them. All tiers take the same plan and
// give back the same facts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"
#include "policy/plan.h"

namespace caisson::runtime {

// The walls that were really applied.
struct IsolationReport {
  std::string runtime;
  std::vector<std::string> namespaces;
  std::string seccomp_profile;
  std::string seccomp_sha256;
  int landlock_abi = 0;
  std::string cgroup_driver;
  int64_t host_uid = 0;
  std::vector<std::string> degraded;
  std::string start = "cold";  // of policy::kStartNames: what had been made before the request came
};

// A file the workload left, read while nothing of it was alive.
struct CollectedFile {
  std::string path;  // absolute, inside
  std::string bytes;
};

struct Collection {
  std::vector<CollectedFile> files;
  std::vector<std::string> skipped;  // "path: reason"
};

struct ExecuteOptions {
  int64_t timeout_ms = 0;
  std::string timeout_name;  // the limit it stands for
  bool last = true;
  // Yields signalfd_siginfo records (a signalfd does) whose signals are passed on; its end cancels at once.
  int signal_fd = -1;
  int64_t signal_grace_ms = 0;  // from a deadly signal to the end by force
  // Called from within Execute, in the order in which things happen inside.
  std::function<void(const Violation&)> on_violation;
  std::function<void(OutputStream, std::string_view)> on_output;  // what is captured, as it arrives, within its limit
};

// One sandbox with the plan's commands in it. Destroying it ends and removes everything.
class Run {
 public:
  virtual ~Run() = default;
  virtual const IsolationReport& isolation() const = 0;
  virtual Result<CommandOutcome> Execute(size_t command, const ExecuteOptions& options) = 0;
  // Ends the run, then reads the files below /scratch and /workspace that match a glob.
  virtual Result<Collection> Collect(const std::vector<std::string>& globs) = 0;
};

// What is kept ready for runs to come, of one kind; numbers since whoever keeps it started.
struct PoolReport {
  std::string start;  // of policy::kStartNames
  uint64_t ready = 0, preparing = 0;
  uint64_t taken = 0, missed = 0, died = 0;
};
struct PoolsReport {
  std::vector<PoolReport> pools;
  uint64_t interpreters_died = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) = 0;
  // Nothing where nothing is kept.
  virtual Result<PoolsReport> Pools() { return PoolsReport(); }
};

}  // namespace caisson::runtime
