// For probes and judges: ancillary data of unix sockets. Each call transfers one byte with it.
#pragma once

#include <vector>

namespace caisson::escape {

// Sends copies of the descriptors. 0, or the negative errno.
long SendDescriptors(int socket, const std::vector<int>& descriptors);

// The one descriptor that came, or the negative errno; -ENOMSG when only the byte came. `flags` are recvmsg's.
int ReceiveDescriptor(int socket, int flags = 0);

// Says that the sender is this process with these ids. 0, or the negative errno.
long SendCredentials(int socket, int pid, unsigned uid, unsigned gid);

}  // namespace caisson::escape
