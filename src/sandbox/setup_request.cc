// The step that gives a sandbox created ahead of time its request. Runs: child after clone, created ahead: unlike the
// other steps it may allocate, because nothing else has ever run in this process.
#include <fcntl.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>

#include "linux/syscalls.h"
#include "sandbox/control.h"
#include "sandbox/mount_fd.h"
#include "sandbox/setup.h"

namespace caisson::sandbox::steps {

namespace {

// The descriptors that belong to the Spec, in the order of Handover.
int TakeDescriptors(SetupContext& context) {
  Handover handover{};
  int fds[kMaxHandoverFds];
  const int count = TakeWithDescriptors(context.control_fd, &handover, sizeof(handover), fds);
  if (count < 0) return errno;
  if (handover.mounts > Handover::kMaxMounts) return EPROTO;
  int next = 0;
  const auto take = [&](bool present) { return present && next < count ? fds[next++] : -1; };
  for (uint32_t i = 0; i < handover.mounts; ++i) context.mount_fds.push_back(take(handover.has_mount[i] != 0));
  return next == count ? 0 : EPROTO;
}

// Scratch was created with the caps of the baseline.
int ChangeScratchCaps(const SetupContext& context, const Limits& made_with) {
  const Limits& limits = context.spec->limits;
  if (limits.scratch_bytes == made_with.scratch_bytes && limits.scratch_inodes == made_with.scratch_inodes) return 0;
  char size[32], inodes[32];
  ::snprintf(size, sizeof(size), "%lld", static_cast<long long>(limits.scratch_bytes));
  ::snprintf(inodes, sizeof(inodes), "%lld", static_cast<long long>(limits.scratch_inodes));
  return ChangeFilesystem(context.scratch_fs_fd, {{"size", size}, {"nr_inodes", inodes}}) == 0 ? 0 : errno;
}

}  // namespace

int TakeRequest(SetupContext& context) {
  if (!context.ahead) return 0;
  if (!context.take_spec(context.control_fd, context.late_spec)) return errno;
  if (const int error = TakeDescriptors(context); error != 0) return error;
  const Limits made_with = context.spec->limits;
  context.late_filter = ChooseFilter(context.late_spec, context.limit_processes_by_rlimit);
  context.spec = &context.late_spec;
  if (!context.spec->landlock) context.landlock_abi = 0;
  return ChangeScratchCaps(context, made_with);
}

}  // namespace caisson::sandbox::steps
