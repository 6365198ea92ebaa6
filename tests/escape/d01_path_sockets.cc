// Services of the host that listen on a path: a process that may connect to docker's socket is root. A read-only mount
// does not stop a connection, so there must be no path. (A directory that the caller shows on purpose includes its
// sockets.)
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

long Connect(const std::string& path, int type = SOCK_STREAM) {
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  ::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) == 0) return 0;
  return -errno;
}

// What a host usually has. On this one few of them may be there, so it is the listener below that must be reached bare.
constexpr const char* kUsual[] = {"/run/docker.sock",
                                  "/var/run/docker.sock",
                                  "/run/podman/podman.sock",
                                  "/run/containerd/containerd.sock",
                                  "/run/crio/crio.sock",
                                  "/run/dbus/system_bus_socket",
                                  "/var/run/dbus/system_bus_socket",
                                  "/run/systemd/private",
                                  "/run/systemd/notify",
                                  "/run/systemd/journal/stdout",
                                  "/run/nscd/socket",
                                  "/var/run/nscd/socket",
                                  "/tmp/.X11-unix/X0",
                                  "/run/user/1000/bus",
                                  "/run/user/0/bus",
                                  "/run/caisson/caisson.sock",
                                  "/run/libvirt/libvirt-sock",
                                  "/run/postgresql/.s.PGSQL.5432",
                                  "/dev/log"};

Observation Search() {
  std::string reached;
  for (const char* path : kUsual) {
    // Even ECONNREFUSED shows that the socket exists.
    const long result = Connect(path);
    if (result != -ENOENT && !IsControl()) reached += std::string(" ") + path;
  }
  const char* listener = ::getenv("SELFTEST_SOCKET");
  const long result = Connect(listener != nullptr ? listener : "");
  if (result == 0) return Escaped("reached the host's listener");
  return reached.empty() ? Blocked(static_cast<int>(-result)) : Partial("there are" + reached);
}

Judgement JudgeListener(Host& host) {
  const std::string directory = host.MakeDirectory();
  ::chmod(directory.c_str(), 0777);
  const std::string path = directory + "/s";
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Vacuous("the temporary directory's name is too long");
  ::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(listener.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.get(), 4) != 0 || ::chmod(path.c_str(), 0777) != 0) {
    return Vacuous("the harness cannot listen");
  }
  const auto bare = SawBare(host, "D01", {{"SELFTEST_SOCKET", path}});
  if (!bare || bare->seen != Seen::kEscaped || !UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)))
    return Vacuous("a bare program does not reach it either");
  const Outcome run = host.Run({.command = host.ProbeCommand("D01"), .env = {{"SELFTEST_SOCKET", path}}});
  const auto inside = run.Saw("D01");
  if (!inside) return Broken("the probe said nothing: " + run.process.err);
  if (inside->seen != Seen::kBlocked || inside->error != ENOENT) return Broken(inside->detail);
  if (UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))) return Broken("a process connected");
  if (!run.result->violations.empty()) return Broken("reported without need: " + run.result->violations[0].reason);
  return Held("ENOENT");
}

const Registration kRow(Row{
    .id = "D01",
    .title = "services of the host that listen on a path: docker, dbus, systemd, X11",
    .severity = Severity::kEscape,
    .walls = {"mount namespace", "pivot_root"},
    .attempts = {{.probe = Search, .judge_only = true}},
    .judge = JudgeListener,
});

}  // namespace

}  // namespace caisson::escape
