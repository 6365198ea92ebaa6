// caisson-egress: relays the connections of one sandbox to the destinations that policy allows, in a process that does
// nothing else.
//
//   caisson-egress <SOCKET
//
// Standard input is a connected seqpacket socket whose other end the supervisor of the sandbox holds;
// egress/control/messages.h describes the messages. The process confines itself before it reads a byte of the sandbox,
// and ends with its owner.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "egress/process.h"

int main() {
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    std::fputs("caisson-egress: part of caisson, which starts it for sandboxes with a network\n", stderr);
    return 2;
  }
  const int code = caisson::egress::RunEgress(STDIN_FILENO);
  ::_exit(code);  // the filter permits no further cleanup
}
