// caisson-ask, inside a session: asks for what the session does not have, waits for the answer and prints it. Called by
// the name of a program that cannot work in a sandbox (sudo, apt), it says what to ask for instead.
//
// It runs on the workload's side and has no rights that other programs there lack: everything is decided outside
// (session/ask_request.h).
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr char kSocket[] = "/run/caisson/ask.sock";
constexpr int kGranted = 0, kDenied = 1, kUsage = 2, kNoAnswer = 3;

constexpr char kHelp[] = R"(caisson-ask KIND WHAT [REASON...]: ask for something that this session does not have.

  caisson-ask network pypi.org "to install requests"     reach a host (host, *.host, host:80, tcp://host:22)
  caisson-ask install pypi                               reach a package registry: pypi, npm, crates, debian, ...
  caisson-ask time 2h                                    a later end of the session
  caisson-ask memory 4G | mount PATH | host_port PORT | credential NAME
                                                         answered with how to open a session that has it

A person decides, or the session's policy. Prints "granted ..." or "denied REASON".
Exit codes: 0 granted, 1 denied, 2 usage, 3 no answer.
)";

constexpr char kNoRoot[] =
    "%s: there is no root in this session, and nothing to gain from it: /workspace and /tmp can be written without.\n"
    "To reach a host or a registry ask for it:  caisson-ask network HOST REASON;  caisson-ask install pypi\n";
constexpr char kNoPackages[] =
    "%s: the system of this session is read-only. Install into the workspace instead (python3 -m venv, npm install,\n"
    "cargo build), after:  caisson-ask install pypi   (or npm, crates, debian, ...)\n"
    "For a system package ask the user for a session with an image that has it (caisson session open --image).\n";

int Ask(std::string line) {
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  line += '\n';
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, kSocket, sizeof(kSocket));
  if (fd < 0 || ::connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) != 0) {
    std::fprintf(stderr, "caisson-ask: %s: %s; this session takes no questions\n", kSocket, std::strerror(errno));
    return kNoAnswer;
  }
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = ::send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  std::string answer;
  char bytes[4096];
  while (answer.size() < sizeof(bytes)) {
    const ssize_t count = ::recv(fd, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    answer.append(bytes, static_cast<size_t>(count));
  }
  ::close(fd);
  if (answer.empty()) {
    std::fprintf(stderr, "caisson-ask: no answer came\n");
    return kNoAnswer;
  }
  std::fputs(answer.c_str(), stdout);
  return answer.rfind("granted", 0) == 0 ? kGranted : kDenied;
}

}  // namespace

int main(int argc, char** argv) {
  const char* slash = argc > 0 ? std::strrchr(argv[0], '/') : nullptr;
  const std::string name = argc == 0 ? "" : slash != nullptr ? slash + 1 : argv[0];
  if (name == "sudo" || name.rfind("apt", 0) == 0) {
    std::fprintf(stderr, name == "sudo" ? kNoRoot : kNoPackages, name.c_str());
    return kDenied;
  }
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(kHelp, stdout);
    return kGranted;
  }
  if (argc < 3) {
    std::fputs(kHelp, stderr);
    return kUsage;
  }
  std::string line;
  for (int i = 1; i < argc; ++i) line += (line.empty() ? "" : " ") + std::string(argv[i]);
  return Ask(std::move(line));
}
