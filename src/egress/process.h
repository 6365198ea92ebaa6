// The egress process: the work of the program caisson-egress.
#pragma once

namespace caisson::egress {

// Serves the owner at the other end of `control`, a connected seqpacket socket, until the owner closes it or sends
// Finish. Returns the exit code: 0 after Finish or a closed connection, 1 after a Fault.
int RunEgress(int control);

}  // namespace caisson::egress
