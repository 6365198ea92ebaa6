#include "sandbox/berth.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "sandbox/control.h"
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

namespace {

// SECURITY: the network namespace belongs to the host's user namespace; see the header.
Status MakeNetwork(Berth& berth) {
  constexpr char kOfThisProcess[] = "/proc/self/ns/net";
  CAISSON_TRY(berth.own_network, linux_sys::Open(kOfThisProcess, O_RDONLY));
  if (::unshare(CLONE_NEWNET) != 0) return Error::System(errno, "make a network namespace ahead");
  CAISSON_TRY(berth.network, linux_sys::Open(kOfThisProcess, O_RDONLY));
  berth.dns = UniqueFd(RaiseLoopbackHere());
  if (!berth.dns) return Error::System(errno, "raise loopback ahead");
  berth.LeaveNetwork();
  return {};
}

Status MakeFirst(Berth& berth) {
  const Expectation& expected = *berth.expected;
  SetupContext context;
  context.spec = &expected.ground;
  context.ahead = true;
  context.take_spec = expected.carrier.take;
  context.interpreter = expected.interpreter;
  context.landlock_abi = linux_sys::LandlockAbi();
  CAISSON_TRY(berth.first, FirstProcess::Clone(context, berth));
  CAISSON_TRY_VOID(berth.first.WriteIdMaps(berth));
  CAISSON_TRY_VOID(berth.first.SendCgroups(berth.group.get()));
  CAISSON_TRY(const Report report, berth.first.AwaitReport());
  CAISSON_CHECK(report.kind == Report::kAwaitsSpec);
  return {};
}

}  // namespace

Result<Berth> Berth::PrepareAhead(std::unique_ptr<Expectation> expected) {
  CAISSON_TRY(Berth berth, Prepare());
  berth.expected = std::move(expected);
  if (berth.group) CAISSON_TRY_VOID(berth.group->MakeAll());
  if (berth.has_id_range() && !CAISSON_LEFT_OUT("network_namespace")) CAISSON_TRY_VOID(MakeNetwork(berth));
  CAISSON_TRY_VOID(MakeFirst(berth));
  return berth;
}

bool Berth::has_id_range() const { return ::geteuid() == 0; }

Status Berth::EnterNetwork() const {
  if (network && ::setns(network.get(), CLONE_NEWNET) != 0) return Error::System(errno, "enter the network namespace");
  return {};
}

void Berth::LeaveNetwork() const {
  // Whoever made one may go back to his own; if not, nothing that follows is what it seems.
  if (network) CAISSON_CHECK(::setns(own_network.get(), CLONE_NEWNET) == 0);
}

}  // namespace caisson::sandbox
