// PID 1 of a virtual machine that a runtime has started: prepares the machine, starts the supervisor of a native
// sandbox as an ordinary user with a cgroup of its own, and serves the runtime at the other end of the machine's port.
//
// The machine brings: this program as /init and kernel modules below /modules (in the order of their names) in its
// initramfs, a virtio port named kPortName, and a virtiofs device with the tag kShareTag. The share has the host's
// trees below "system" and the plan's mounts below "mounts" (agent/nested.h).
#pragma once

namespace caisson::agent {

inline constexpr char kPortName[] = "caisson";
inline constexpr char kShareTag[] = "caisson";

// Returns when the machine is of no further use. The end of PID 1 ends the machine.
int ServeGuest();

}  // namespace caisson::agent
