// The caisson-agent program: the witness inside foreign walls. Wiring only; see src/agent/agent.h.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "agent/agent.h"
#include "agent/guest.h"
#include "base/version.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("caisson-agent %s\n", caisson::kVersion);
    return 0;
  }
  const bool guest = argc == 2 && std::strcmp(argv[1], "guest") == 0;
  const bool await_greeting = argc == 2 && std::strcmp(argv[1], "--await-greeting") == 0;
  if ((argc > 1 && !guest && !await_greeting) || ::getpid() != 1) {
    std::fputs(
        "caisson-agent: runs as PID 1 of a container or pod that a runtime of caisson has made, or as PID 1 of such a "
        "virtual machine with the argument \"guest\"\n",
        stderr);
    return 2;
  }
  if (guest) return caisson::agent::ServeGuest();
  // Every process inside may read the arguments of PID 1. They should not tell where this program was shown.
  std::memset(argv[0], 0, std::strlen(argv[0]));
  // The stream moves away from the numbers that commands use; a stray line of output must not become a frame.
  const int input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int output = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (input < 0 || output < 0 || nothing < 0) return 1;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    if (::dup2(nothing, fd) < 0) return 1;
  }
  ::close(nothing);
  return caisson::agent::Serve(input, output, await_greeting);
}
