// Sandbox: one isolated place, built from a Spec, in which its commands run one after the other.
//
// Create builds every wall or fails naming the one it could not build; the workload never runs behind fewer. Run
// supervises one command until nothing of it is left. The destructor kills, waits and removes everything.
//
// Runs: supervisor. One thread: the parent-death signal is tied to the thread that called Create.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"
#include "sandbox/berth.h"
#include "sandbox/collector.h"
#include "sandbox/first_process.h"
#include "sandbox/observer.h"
#include "sandbox/setup.h"
#include "sandbox/spec.h"
#include "sandbox/tree_meter.h"

namespace caisson::sandbox {

// What was really applied, for the record.
struct Isolation {
  std::vector<std::string> namespaces;
  std::string seccomp_profile;
  std::string seccomp_sha256;
  int landlock_abi = 0;
  CgroupDriver cgroup_driver = CgroupDriver::kNone;
  uid_t host_uid = 0;         // what the inside user is outside
  bool own_id_range = false;  // false: rootless, the caller's own user
  Start start = Start::kCold;
  std::vector<std::string> degraded;  // what the profile accepted losing, each with its reason
};

struct RunOptions {
  int64_t timeout_ms = 0;
  std::string timeout_name = "command_timeout_ms";  // the limit that timeout stands for
  bool last = true;                                 // no command follows
  // Yields signalfd_siginfo records, as a signalfd does: their signals are passed on, and after the grace the sandbox
  // is killed. Its end, or anything but a whole record, means that nobody wants the command any more: killed at once.
  int signal_fd = -1;
  int64_t signal_grace_ms = 0;
  std::function<void(const Violation&)> on_violation;
  // Captured bytes as they arrive, as long as they are within the output limit.
  std::function<void(OutputStream, std::string_view)> on_output;
  // After every turn of the supervisor's loop, that is, at least twice a second.
  std::function<void()> on_turn;
};

class Sandbox {
 public:
  static Result<std::unique_ptr<Sandbox>> Create(Spec spec);
  // In a berth that may have been prepared ahead of time.
  static Result<std::unique_ptr<Sandbox>> Create(Spec spec, Berth berth);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  Result<CommandOutcome> Run(uint32_t command, const RunOptions& options);

  const Isolation& isolation() const { return isolation_; }
  const Spec& spec() const { return spec_; }

  // Kills everything inside and waits until it is gone. Only then may what the workload wrote be looked at.
  void Kill() { first_.Kill(); }
  // Kills, then reads the files below /scratch, and below /workspace where it is writable, that match a glob.
  Collected Collect(const std::vector<std::string>& globs);

 private:
  friend class Supervision;
  Sandbox(Spec spec, Berth berth) : spec_(std::move(spec)), berth_(std::move(berth)) {}

  Status Build();
  Status PrepareIdentity();
  Status PrepareMounts();
  Status PrepareStreams();
  Status MakeFirst();
  Status HandOverToFirst();
  void ReclaimStale() const;
  Status ApplyLimits();
  Status AwaitReady();

  Spec spec_;
  std::unique_ptr<ExtendedProgram> extended_;  // where the profile adds to the filter
  Isolation isolation_;
  SetupContext context_;
  Berth berth_;
  std::vector<UniqueFd> child_fds_;    // ends that belong to PID 1; closed here once it has them
  std::vector<UniqueFd> stdin_pipes_;  // write ends, one per command; invalid for none
  UniqueFd stdout_pipe_, stderr_pipe_;
  UniqueFd scratch_, workspace_, dns_, terminal_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<TreeMeter> meter_;  // only where nothing else counts
  FirstProcess first_;                // declared last: gone before what it stands in
};

}  // namespace caisson::sandbox
