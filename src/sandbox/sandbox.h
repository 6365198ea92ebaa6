// Sandbox: one isolated place, built from a Spec, in which commands run one after the other.
//
// Create builds every wall or fails and names the wall it could not build; the workload never runs behind fewer walls.
// Run gives PID 1 one command and supervises it until all of its processes are gone; any number of commands may follow.
// A command that has to be ended from outside ends the sandbox. The destructor kills, waits and removes everything.
//
// Runs: supervisor. One thread: the parent-death signal is tied to the thread that called Create.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_io.h"
#include "base/network_asker.h"
#include "base/outcome.h"
#include "base/result.h"
#include "base/stop.h"
#include "sandbox/collector.h"
#include "sandbox/dns_server.h"
#include "sandbox/egress_link.h"
#include "sandbox/host_resources.h"
#include "sandbox/init_process.h"
#include "sandbox/inside_files.h"
#include "sandbox/observer.h"
#include "sandbox/setup.h"
#include "sandbox/spec.h"
#include "sandbox/tree_meter.h"
#include "sandbox/walls.h"

namespace caisson::sandbox {

// The isolation that was really applied, for the record.
struct Isolation {
  Walls walls;
  std::string seccomp_profile;
  std::string seccomp_sha256;
  int landlock_abi = 0;
  CgroupDriver cgroup_driver = CgroupDriver::kNone;
  bool own_id_range = false;  // false: rootless, the caller's own user
  Start start = Start::kCold;
  std::vector<std::string> degraded;  // walls that the profile accepted losing, each with its reason
};

struct RunOptions {
  int64_t timeout_ms = 0;
  std::string timeout_name = "command_timeout_ms";  // the name of the limit behind the timeout
  bool last = false;  // no command follows: PID 1 ends after this one, and the result does not wait for that
  // Passes signals on to the workload; after a terminating signal and the grace period the supervisor kills the
  // sandbox. A stop request kills it at once.
  const StopToken* stop = nullptr;
  int64_t signal_grace_ms = 0;
  std::function<void(const Violation&)> on_violation;
  NetworkAsker* asker = nullptr;  // borrowed; for a sandbox whose network is attended
  // Called after every turn of the supervisor's loop, that is, at least twice a second.
  std::function<void()> on_turn;
};

class Sandbox {
 public:
  static Result<std::unique_ptr<Sandbox>> Create(Spec spec);
  // Uses host resources that may have been prepared ahead of time.
  static Result<std::unique_ptr<Sandbox>> Create(Spec spec, HostResources resources);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  Result<CommandOutcome> Run(const Command& command, const CommandIo& io, const RunOptions& options);

  const Isolation& isolation() const { return isolation_; }
  const Spec& spec() const { return spec_; }

  // Kills everything inside and waits until it is gone.
  void Kill() { first_.Kill(); }
  // Reads the files below /scratch, and below /workspace where it is writable, that match a glob. Files of the workload
  // are read only while none of its processes is alive: PID 1 ends every process of a command before it reports the
  // command's end, and without that report the sandbox is killed first.
  Collected Collect(const std::vector<std::string>& globs);

  // The sandbox's tree, for the files of a live run.
  InsideFiles files() const;

 private:
  friend class Supervision;
  friend class LiveSupervision;
  Sandbox(Spec spec, HostResources resources);

  Status Build();
  Status PrepareIdentity();
  Status PrepareMounts();
  Status PrepareLayer();
  Status PrepareImage();
  Status MakeFirst();
  Status HandOverToFirst();
  void ReclaimStale() const;
  Status ApplyLimits();
  Status AwaitReady();
  Status ServeNames(UniqueFd dns, UniqueFd dns_listener);
  bool IsServed(const Peer& peer) const;

  Spec spec_;
  // SECURITY: taken out of the spec, so that no part of it, listeners and secrets least of all, is sent to a PID 1 that
  // was created ahead.
  std::optional<Network> network_;
  std::unique_ptr<ExtendedProgram> extended_;  // where the profile adds to the filter
  Isolation isolation_;
  uid_t host_uid_ = 0;  // the inside user's uid outside
  SetupContext context_;
  HostResources resources_;
  std::vector<UniqueFd> child_fds_;  // mounts for PID 1; closed here once PID 1 has them
  UniqueFd root_, scratch_, workspace_;
  uint64_t commands_begun_ = 0;
  bool is_quiet_ = true;                 // no process of the workload is alive
  std::unique_ptr<DnsServer> dns_;       // only without a network
  std::unique_ptr<EgressLink> egress_;   // only with a network
  std::optional<InsideSockets> inside_;  // only of a live run without a network, for forwards
  int64_t dropped_queries_ = 0;          // as last seen
  UniqueFd proc_;                        // of the sandbox; with a meter it is the meter's
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<TreeMeter> meter_;  // only where nothing else counts
  InitProcess first_;                 // declared last: destroyed before the resources it uses
};

}  // namespace caisson::sandbox
