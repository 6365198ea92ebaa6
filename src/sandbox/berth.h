// A berth: what a sandbox needs of the machine whatever its Spec says. A slot, the keeper that cleans up after a kill,
// the cgroups and, prepared ahead of time, the network namespace and a PID 1 that has built what it can and waits for a
// Spec. None of it depends on the request, so a supervisor may have it ready before there is one. Used once.
//
// Runs: supervisor. Gives everything back when it goes, in the order that leaves nothing behind.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/first_process.h"
#include "sandbox/interpreter.h"
#include "sandbox/keeper.h"
#include "sandbox/limit_group.h"
#include "sandbox/slot.h"

namespace caisson::sandbox {

// How a Spec gets to a PID 1 that was made before it. The two ends are given by whoever knows how to write one down.
struct SpecCarrier {
  Status (*send)(int control_fd, const Spec& spec) = nullptr;
  bool (*take)(int control_fd, Spec& spec) = nullptr;  // Runs: PID 1; false with errno
};

// What a PID 1 is made with ahead of its Spec.
struct Expectation {
  Spec ground;  // what the Spec will be like, in what the early steps use (SameGround)
  SpecCarrier carrier;
  const Interpreter* interpreter = nullptr;
};

struct Berth {
  // What must be there before PID 1 is cloned; the rest is made beside its own work.
  static Result<Berth> Prepare();
  // Everything that can be. SECURITY: the network namespace belongs to the host's user namespace, so that nobody inside
  // has a right to change it at any time, and holds nothing but loopback and the socket for name look-ups. The
  // supervisor is in it only to make it and to clone PID 1: a socket it made there would be listed inside.
  // An ordinary user cannot make one ahead; his PID 1 makes its own.
  static Result<Berth> PrepareAhead(std::unique_ptr<Expectation> expected);

  // For PID 1 to be born into the namespace that was made ahead: into it, and back again. Nothing where there is none.
  Status EnterNetwork() const;
  void LeaveNetwork() const;

  // Started by root, the sandbox has a range of host ids of its own; else its user is the caller.
  bool has_id_range() const;

  CgroupHost cgroup_host;
  std::unique_ptr<Slot> slot;      // absent for an ordinary user without cgroups, who needs no number
  std::unique_ptr<Keeper> keeper;  // declared before the group: dismissed after the group is gone
  std::unique_ptr<LimitGroup> group;
  UniqueFd network;  // the network namespace that was made ahead; none: PID 1 makes its own
  UniqueFd own_network;
  UniqueFd dns;  // where name look-ups arrive in `network`
  // Made before there was a Spec; nothing of these when it was not.
  std::unique_ptr<Expectation> expected;
  FirstProcess first;  // declared last: its end comes before that of all it stands in
};

}  // namespace caisson::sandbox
