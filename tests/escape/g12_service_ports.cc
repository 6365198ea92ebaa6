// The services that run sandboxes listen on the loopback of their machine: caissond, docker, the kubelet, metrics. A
// sandbox has its own loopback without any listener; in addition, each service authenticates its callers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

// docker (plain, TLS), the API of Kubernetes, kubelet, etcd, Prometheus and its exporters, a caissond, PostgreSQL.
constexpr int kUsualPorts[] = {2375, 2376, 6443, 8443, 10250, 10255, 2379, 9090, 9100, 8123, 5432};

long Connect(int port) {
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return -errno;
  return ::connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) == 0 ? 0 : -errno;
}

Observation Reach() {
  const char* port = ::getenv("SELFTEST_PORT");
  if (port == nullptr) return NotApplicable("no port to try");
  const long result = Connect(std::atoi(port));
  if (result == 0) return Escaped("reached the host's listener");
  for (const int usual : kUsualPorts) {
    if (const long other = Connect(usual); other != -ECONNREFUSED && !IsControl())
      return Partial("port " + std::to_string(usual) + " answered " + std::to_string(-other));
  }
  return Blocked(static_cast<int>(-result));
}

// The listener is the harness's own: what connects to it is on the host's network.
struct Listener {
  UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  int port = 0;

  Listener() {
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), size) != 0 || ::listen(fd.get(), 8) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<struct sockaddr*>(&address), &size) != 0)
      return;
    port = ntohs(address.sin_port);
  }

  bool SawSomebody() const { return UniqueFd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)).valid(); }
};

Judgement JudgePorts(Host& host) {
  const Listener listener;
  if (listener.port == 0) return Vacuous("cannot listen on loopback");
  const Environment env = {{"SELFTEST_PORT", std::to_string(listener.port)}};
  const auto bare = SawBare(host, "G12/reach", env);
  if (!bare || bare->seen != Seen::kEscaped || !listener.SawSomebody())
    return Vacuous("a bare program does not reach the listener either");
  const Outcome inside = host.Run({.command = host.ProbeCommand("G12/reach"), .env = env});
  const auto saw = inside.Saw("G12/reach");
  if (!saw) return Broken("the probe said nothing: " + inside.process.err);
  if (listener.SawSomebody()) return Broken("the host's listener was reached");
  if (saw->seen != Seen::kBlocked || saw->error != ECONNREFUSED) return Broken("ports: " + saw->detail);
  return Held("nobody listens on the sandbox's loopback");
}

const Registration kRow(Row{
    .id = "G12",
    .title = "the ports of the services that run sandboxes",
    .severity = Severity::kLateral,
    .walls = {"network namespace"},
    .attempts = {{.name = "reach", .probe = Reach, .judge_only = true}},
    .judge = JudgePorts,
});

}  // namespace

}  // namespace caisson::escape
