// A berth: what a sandbox needs of the machine whatever its Spec says. A slot, the keeper that cleans up after a kill,
// the cgroups and, prepared ahead of time, the network namespace. None of it depends on the request, so a supervisor
// may have it ready before there is one; none of it is a wall until PID 1 stands behind it. Used once.
//
// Runs: supervisor. Gives everything back when it goes, in the order that leaves nothing behind.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/keeper.h"
#include "sandbox/limit_group.h"
#include "sandbox/slot.h"

namespace caisson::sandbox {

struct Berth {
  // What must be there before PID 1 is cloned; the rest is made beside its own work.
  static Result<Berth> Prepare();
  // Everything that can be. SECURITY: the network namespace belongs to the host's user namespace, so that nobody inside
  // has a right to change it at any time, and holds nothing but loopback and the socket for name look-ups. The
  // supervisor is in it only to make it and to clone PID 1: a socket it made there would be listed inside.
  // An ordinary user cannot make one ahead; his PID 1 makes its own.
  static Result<Berth> PrepareAhead();

  // For PID 1 to be born into the namespace that was made ahead: into it, and back again. Nothing where there is none.
  Status EnterNetwork() const;
  void LeaveNetwork() const;

  CgroupHost cgroup_host;
  std::unique_ptr<Slot> slot;      // absent for an ordinary user without cgroups, who needs no number
  std::unique_ptr<Keeper> keeper;  // declared before the group: dismissed after the group is gone
  std::unique_ptr<LimitGroup> group;
  UniqueFd network;  // the network namespace that was made ahead; none: PID 1 makes its own
  UniqueFd own_network;
  UniqueFd dns;        // where name look-ups arrive in `network`
  bool ahead = false;  // before there was a Spec
};

}  // namespace caisson::sandbox
