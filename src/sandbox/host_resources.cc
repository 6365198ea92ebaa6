#include "sandbox/host_resources.h"

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
#include "sandbox/walls.h"

namespace caisson::sandbox {

Result<HostResources> HostResources::Prepare() {
  HostResources resources;
  resources.cgroup_host = ProbeCgroups();
  const bool cgroups = resources.cgroup_host.driver != CgroupDriver::kNone;
  if (::geteuid() != 0 && !cgroups) return resources;
  CAISSON_TRY(Slot slot, Slot::Acquire(Slot::DefaultDirectory()));
  resources.slot = std::make_unique<Slot>(std::move(slot));
  if (!cgroups) return resources;
  // Starts before the first group exists, so that our death never leaves a group behind.
  CAISSON_TRY(resources.cleanup, CleanupProcess::Start(resources.cgroup_host, *resources.slot));
  Result<LimitGroup> group = LimitGroup::Create(resources.cgroup_host, resources.slot->number());
  if (!group) return std::move(group).error().In("wall cgroup");
  resources.group = std::make_unique<LimitGroup>(*std::move(group));
  return resources;
}

namespace {

// SECURITY: the network namespace belongs to the host's user namespace; see the header.
Status MakeNetwork(HostResources& resources) {
  constexpr char kOfThisProcess[] = "/proc/self/ns/net";
  CAISSON_TRY(resources.own_network, linux_sys::Open(kOfThisProcess, O_RDONLY));
  if (::unshare(CLONE_NEWNET) != 0) return Error::System(errno, "make a network namespace ahead");
  CAISSON_TRY(resources.network, linux_sys::Open(kOfThisProcess, O_RDONLY));
  DnsSockets sockets;
  const int error = RaiseLoopbackHere(sockets);
  resources.dns = UniqueFd(sockets.datagrams);
  resources.dns_listener = UniqueFd(sockets.listener);
  if (error != 0) return Error::System(error, "raise loopback ahead");
  resources.LeaveNetwork();
  return {};
}

Status MakeFirst(HostResources& resources) {
  const ParkedSetup& expected = *resources.expected;
  SetupContext context;
  context.spec = &expected.baseline;
  context.ahead = true;
  context.take_spec = expected.transfer.take;
  context.interpreter = expected.interpreter;
  context.landlock_abi = linux_sys::LandlockAbi();
  CAISSON_TRY(resources.first, InitProcess::Clone(context, resources));
  CAISSON_TRY_VOID(resources.first.WriteIdMaps(resources));
  CAISSON_TRY_VOID(resources.first.SendCgroups(resources.group.get()));
  CAISSON_TRY(const Report report, resources.first.AwaitReport(nullptr));
  CAISSON_CHECK(report.kind == Report::kAwaitsSpec);
  return {};
}

}  // namespace

Result<HostResources> HostResources::PrepareAhead(std::unique_ptr<ParkedSetup> expected) {
  CAISSON_TRY(HostResources resources, Prepare());
  resources.expected = std::move(expected);
  RememberOwnNamespaces();
  if (resources.group) CAISSON_TRY_VOID(resources.group->MakeAll());
  if (resources.has_id_range() && !CAISSON_LEFT_OUT("network_namespace")) CAISSON_TRY_VOID(MakeNetwork(resources));
  CAISSON_TRY_VOID(MakeFirst(resources));
  return resources;
}

bool HostResources::has_id_range() const { return ::geteuid() == 0; }

Status HostResources::EnterNetwork() const {
  if (network && ::setns(network.get(), CLONE_NEWNET) != 0) return Error::System(errno, "enter the network namespace");
  return {};
}

void HostResources::LeaveNetwork() const {
  // The process that made the namespace may return to its own. If that fails, everything that follows would act on the
  // wrong network, so the process aborts.
  if (network) CAISSON_CHECK(::setns(own_network.get(), CLONE_NEWNET) == 0);
}

}  // namespace caisson::sandbox
