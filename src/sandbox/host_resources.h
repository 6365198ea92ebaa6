// Host resources: the parts of a sandbox that do not depend on its Spec. These are a slot, the cleanup process that
// cleans up after a kill, the cgroups and, when prepared ahead of time, the network namespace and a PID 1 that has
// completed its early set-up and waits for a Spec. A supervisor can therefore prepare them before a request arrives.
// Used once.
//
// Runs: supervisor. The destructor releases everything in the order that leaves nothing behind.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/cleanup_process.h"
#include "sandbox/init_process.h"
#include "sandbox/limit_group.h"
#include "sandbox/slot.h"
#include "sandbox/warm_interpreter.h"

namespace caisson::sandbox {

// How a Spec is sent to a PID 1 that was created before it. The caller, which knows how to encode a Spec, provides both
// ends.
struct SpecTransfer {
  Status (*send)(int control_fd, const Spec& spec) = nullptr;
  bool (*take)(int control_fd, Spec& spec) = nullptr;  // Runs: PID 1; false with errno
};

// The input for creating a PID 1 ahead of its Spec.
struct ParkedSetup {
  Spec baseline;  // predicts the parts of the Spec that the early steps use (MatchesBaseline)
  SpecTransfer transfer;
  const WarmInterpreter* interpreter = nullptr;
};

struct HostResources {
  // Prepares what must exist before PID 1 is cloned; the rest is made while PID 1 works.
  static Result<HostResources> Prepare();
  // Prepares everything that does not need a request. SECURITY: the network namespace belongs to the host's user
  // namespace, so that no process inside has a right to change it at any time, and holds nothing but loopback and the
  // socket for name look-ups. The supervisor enters it only to create it and to clone PID 1: a socket that the
  // supervisor made there would be listed inside. An ordinary user cannot create a network namespace ahead; that user's
  // PID 1 makes its own.
  static Result<HostResources> PrepareAhead(std::unique_ptr<ParkedSetup> expected);

  // Enter and leave the network namespace that was made ahead, so that PID 1 is cloned inside it. No effect if there is
  // none.
  Status EnterNetwork() const;
  void LeaveNetwork() const;

  // If started by root, the sandbox has its own range of host ids; otherwise its user is the caller.
  bool has_id_range() const;

  CgroupHost cgroup_host;
  std::unique_ptr<Slot> slot;               // absent for an ordinary user without cgroups, who needs no number
  std::unique_ptr<CleanupProcess> cleanup;  // declared before the group: dismissed after the group is gone
  std::unique_ptr<LimitGroup> group;
  UniqueFd network;  // the network namespace that was made ahead; none: PID 1 makes its own
  UniqueFd own_network;
  UniqueFd dns, dns_listener;  // where name look-ups arrive in `network`
  // Created before the Spec arrived; empty if nothing was prepared ahead.
  std::unique_ptr<ParkedSetup> expected;
  InitProcess first;  // declared last: it must end before the resources that it runs in
};

}  // namespace caisson::sandbox
