#include "sandbox/berth.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "linux/files.h"
#include "sandbox/mutation.h"
#include "sandbox/setup.h"

namespace caisson::sandbox {

Result<Berth> Berth::Prepare() {
  Berth berth;
  berth.cgroup_host = ProbeCgroups();
  const bool cgroups = berth.cgroup_host.driver != CgroupDriver::kNone;
  if (::geteuid() != 0 && !cgroups) return berth;
  CAISSON_TRY(Slot slot, Slot::Acquire(Slot::DefaultDirectory()));
  berth.slot = std::make_unique<Slot>(std::move(slot));
  if (!cgroups) return berth;
  // Before the first group exists, so that there is no moment at which our death would leave one.
  CAISSON_TRY(berth.keeper, Keeper::Start(berth.cgroup_host, *berth.slot));
  Result<LimitGroup> group = LimitGroup::Create(berth.cgroup_host, berth.slot->number());
  if (!group) return std::move(group).error().In("wall cgroup");
  berth.group = std::make_unique<LimitGroup>(*std::move(group));
  return berth;
}

Result<Berth> Berth::PrepareAhead() {
  CAISSON_TRY(Berth berth, Prepare());
  berth.ahead = true;
  if (berth.group) CAISSON_TRY_VOID(berth.group->MakeAll());
  if (::geteuid() != 0 || CAISSON_LEFT_OUT("network_namespace")) return berth;
  constexpr char kOfThisProcess[] = "/proc/self/ns/net";
  CAISSON_TRY(berth.own_network, linux_sys::Open(kOfThisProcess, O_RDONLY));
  if (::unshare(CLONE_NEWNET) != 0) return Error::System(errno, "make a network namespace ahead");
  CAISSON_TRY(berth.network, linux_sys::Open(kOfThisProcess, O_RDONLY));
  berth.dns = UniqueFd(RaiseLoopbackHere());
  if (!berth.dns) return Error::System(errno, "raise loopback ahead");
  berth.LeaveNetwork();
  return berth;
}

Status Berth::EnterNetwork() const {
  if (network && ::setns(network.get(), CLONE_NEWNET) != 0) return Error::System(errno, "enter the network namespace");
  return {};
}

void Berth::LeaveNetwork() const {
  // Whoever made one may go back to his own; if not, nothing that follows is what it seems.
  if (network) CAISSON_CHECK(::setns(own_network.get(), CLONE_NEWNET) == 0);
}

}  // namespace caisson::sandbox
