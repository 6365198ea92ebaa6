// Reads the filter's notifications and records what the workload attempted.
//
// SECURITY: observation never permits. A forbidden call is answered from its number and registers alone. An observed
// call is continued, and the kernel's own walls (read-only mounts, an empty network namespace, Landlock) refuse it; or
// the observer refuses it with the error that the kernel has for such arguments. No race turns either answer into a
// permission.
//
// SECURITY: observation fails closed. An argument that cannot be read, or a file that cannot be named, is a violation
// of its own (reason "unreadable"), because the kernel may be able to read what the supervisor cannot.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "base/violation.h"
#include "linux/abi/seccomp.h"
#include "sandbox/inside_paths.h"
#include "sandbox/observed_calls.h"
#include "sandbox/observed_memory.h"
#include "sandbox/route_counters.h"
#include "sandbox/seccomp_program.h"
#include "sandbox/write_rules.h"

namespace caisson::sandbox {

class Observer {
 public:
  struct Options : WriteRules {
    int64_t scratch_bytes = 0;
    IsServed is_served;  // peers that the sandbox may reach; none: nothing but loopback
    std::function<std::string(uint32_t address)> name_at;  // the name that an address stands for; may be empty
  };

  Observer(UniqueFd listener, UniqueFd root, const SeccompProgram& program, Options options);

  int fd() const { return listener_.get(); }

  struct Seen {
    std::optional<Violation> violation;
    bool kill = false;  // the call must never return: end the sandbox
  };
  // Takes one notification and answers it. Calls `before_thread` before a thread is created, where that is observed.
  // The caller fills in the times.
  Seen HandleOne(const std::function<void()>& before_thread);

  // Attempts to reach a peer that the kernel has counted since the last call and that no observed call explains. Only a
  // workload that has made a network call can have any.
  std::optional<Violation> FindUnseenPeers();

 private:
  // The judgement of an observed call.
  struct Judgement {
    std::optional<Violation> violation;
    int error = 0;  // answered instead of continuing the call; 0: continue
  };
  class Arguments;
  Judgement Judge(const struct seccomp_notif& notification, const NotifyRule& rule);
  Judgement JudgeWrite(const Arguments& arguments, const PathCall& call) const;
  Judgement JudgePath(const Arguments& arguments, const PathCall& call, const std::string& path,
                      const OpenHow& how) const;
  Judgement JudgeFile(const Arguments& arguments, const PathCall& call, const InsidePaths::Resolved& file,
                      uint64_t open_flags) const;
  Judgement JudgeBind(const Arguments& arguments) const;
  Judgement JudgeAddress(const Arguments& arguments, const AddressCall& call);
  bool MayBeWritten(const InsidePaths::Resolved& file) const;
  Violation Describe(const struct seccomp_notif& notification, const NotifyRule& rule) const;

  UniqueFd listener_;
  InsidePaths paths_;
  const SeccompProgram& program_;
  Options options_;
  RouteCounters routes_;
  bool routes_unreadable_ = false;
  int64_t unrouted_ = 0;    // as last read
  int64_t peers_seen_ = 0;  // outside peers in calls since then
};

}  // namespace caisson::sandbox
