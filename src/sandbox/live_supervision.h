// The supervisor of a live run: one sandbox in which commands run side by side (runtime/live_run.h). It watches the
// whole sandbox: memory, processes, scratch, denied and observed system calls, name look-ups and connections. Streams
// and clocks of single commands are the caller's.
//
// A limit that the kernel enforces costs the process that passes it; a limit that is only watched costs every process
// of the run when it is passed. The sandbox itself stays, with its files, until it is destroyed.
//
// Runs: supervisor, in the thread that created the sandbox.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/live_command.h"
#include "base/result.h"
#include "linux/event_loop.h"
#include "sandbox/limit_group.h"
#include "sandbox/network_record.h"
#include "sandbox/observation_budget.h"
#include "sandbox/sandbox.h"
#include "sandbox/violation_log.h"

namespace caisson::sandbox {

class LiveSupervision {
 public:
  // `sandbox` was created with Spec::live, has run no command, and outlives this object.
  explicit LiveSupervision(Sandbox& sandbox);

  Result<LiveCommand> Begin(const Command& command, const LiveCommandOptions& options);
  Status Signal(uint32_t command, int signal);
  Status EndCommand(uint32_t command);
  Status Pause();
  Status Resume();

  // Answers a question of a kQuestion event.
  Status AnswerNetwork(const NetworkAnswer& answer);
  // Allows a destination from now on; `label` is how the record names the rule.
  Status AllowNetwork(const std::string& rule, const std::string& label);
  // Leads connections at `listener` to a port of the sandbox's loopback until EndForward. Where the sandbox has no
  // network, the first one starts an egress process that can do nothing else.
  Status Forward(UniqueFd listener, uint16_t port, uint16_t inside_port);
  Status EndForward(uint16_t port);

  // Readable when Turn has something to do.
  int fd() const { return loop_.fd(); }
  int64_t MsUntilTurn() const;
  std::vector<LiveEvent> Turn();
  LiveUsage ReadUsage() const;
  bool has_ended() const { return ended_; }

 private:
  struct Running {
    int exec_errno = 0;
    int64_t started_ns = 0;
    int64_t oom_kills = 0;  // of the group when it started
  };

  Status Order(const LiveOrder& order);
  Status Wake();
  void TakeReports();
  void TakeEnd(const Report& report);
  void OnNotification();
  std::vector<uint8_t> AnswerQuery(std::span<const uint8_t> query);
  void ServeNames();
  void ServeForwards();
  EgressLink* forwarder() const { return sandbox_.egress_ ? sandbox_.egress_.get() : forwards_.get(); }
  void ServeObserved();
  void AddNetworkEvent(const egress::control::Event& event);
  void CheckCounters();
  void CheckUncharged();
  void CheckScratch();
  void Sample();
  void EndAll(ViolationClass violation_class, const char* reason, int64_t limit,
              std::vector<std::pair<std::string, EvidenceValue>> evidence);
  void Add(Violation violation);
  void AddLimit(ViolationClass violation_class, const char* reason, int64_t limit,
                std::vector<std::pair<std::string, EvidenceValue>> evidence);
  void EndRun(std::string reason);
  int64_t ElapsedMs() const;
  int64_t OomKills() const;

  Sandbox& sandbox_;
  const Limits& limits_;
  linux_sys::EventLoop loop_;
  ObservationBudget budget_;
  bool held_ = false;  // observed calls and look-ups wait until hold_until_ns_
  int64_t hold_until_ns_ = 0;
  const int64_t start_ns_;
  uint32_t last_number_ = 0;
  std::map<uint32_t, Running> running_;
  ViolationLog violations_;
  NetworkRecord network_;
  Network only_forwards_;                 // allows nothing
  std::unique_ptr<EgressLink> forwards_;  // only without a network
  std::vector<LiveEvent> events_;
  std::optional<int> stopped_;  // the answer to a request to stop everything
  int64_t oom_kills_ = 0;       // as last reported
  int64_t refused_forks_ = 0;   // likewise
  int64_t next_counters_ms_ = 0;
  int64_t next_sample_ms_ = 0;
  int64_t over_limit_since_ms_ = -1;
  int64_t scratch_bytes_ = 0;
  int64_t peak_memory_ = 0;
  bool scratch_full_ = false;
  bool ended_ = false;
};

}  // namespace caisson::sandbox
