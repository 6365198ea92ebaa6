// PID 1 of a live run: commands run side by side, and their processes may outlive them. PID 1 starts commands, reaps
// every process that ends, reports the end of each command, and signals or kills processes when the supervisor asks.
//
// It waits for signals only: the kernel tells it of ended processes, and the supervisor, which sends one signal after
// each packet, of packets. So it makes no system call that PID 1 of an ordinary run does not make, except to read the
// process table.
#pragma once

#include <signal.h>

#include "sandbox/command_order.h"
#include "sandbox/setup.h"

namespace caisson::sandbox {

// Sent by the supervisor after each packet. From inside it only makes PID 1 look.
inline constexpr int kLookSignal = SIGUSR1;

// As many commands can run at once.
inline constexpr size_t kMaxLiveCommands = 256;

// Runs: PID 1, from its first live command on. `signals` are blocked. Exits when the supervisor is gone.
[[noreturn]] void RunLive(const SetupContext& context, ReceivedCommand& first, const sigset_t& signals);

}  // namespace caisson::sandbox
