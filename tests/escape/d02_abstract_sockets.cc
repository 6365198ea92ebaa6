// Abstract sockets have a name and no path, so no mount hides them: only the network namespace does.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

socklen_t Named(const std::string& name, struct sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  ::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + name.size());
}

long Connect(const std::string& name) {
  struct sockaddr_un address {};
  const socklen_t size = Named(name, &address);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), size) == 0 ? 0 : -errno;
}

Observation Canaries() { return FromCall(Connect(Canary("ABSTRACT")), "reached the host's listener"); }

// By binding: a name that is taken shows that another process uses it.
Observation Taken() {
  struct sockaddr_un address {};
  const socklen_t size = Named(Canary("ABSTRACT"), &address);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), size) == 0)
    return Blocked(0, "the name is free");
  return errno == EADDRINUSE ? Escaped("the name is taken") : Blocked(errno);
}

constexpr char kList[] = R"(
names = [line.split()[-1] for line in pathlib.Path('/proc/net/unix').read_text().splitlines()[1:]]
if names: escaped(f'{len(names)} sockets')
blocked(0, 'no socket at all')
)";

std::string Word() {
  const char* word = ::getenv("SELFTEST_WORD");
  return word != nullptr ? word : "";
}

Observation Listen() {
  struct sockaddr_un address {};
  const socklen_t size = Named(Word(), &address);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), size) != 0 || ::listen(fd.get(), 1) != 0)
    return NotApplicable("cannot listen");
  SayReadyAndWait();
  return Blocked(0);
}

Observation Find() { return FromCall(Connect(Word()), "reached the neighbour"); }

Judgement JudgeNeighbour(Host& host) {
  const Environment env = {{"SELFTEST_WORD", "caisson-selftest-" + std::to_string(::getpid())}};
  {
    Neighbour bare = Neighbour::Bare(host, "D02/listen", env);
    const auto saw = SawBare(host, "D02/find", env);
    bare.End();
    if (!saw || saw->seen != Seen::kEscaped) return Vacuous("bare programs do not reach each other either");
  }
  Neighbour a = Neighbour::InSandbox(host, "D02/listen", env);
  if (!a.ready()) return Broken("the neighbour did not start: " + a.End().process.err);
  const Outcome b = host.Run({.command = host.ProbeCommand("D02/find"), .env = env});
  a.End();
  const auto saw = b.Saw("D02/find");
  if (!saw) return Broken("the probe said nothing: " + b.process.err);
  if (saw->seen != Seen::kBlocked || saw->error != ECONNREFUSED) return Broken("neighbour: " + saw->detail);
  return Held("neighbours do not reach each other");
}

const Registration kRow(Row{
    .id = "D02",
    .title = "abstract sockets of the host and of another sandbox",
    .severity = Severity::kEscape,
    .walls = {"network namespace", "landlock"},
    .attempts = {{.name = "connect", .probe = Canaries, .expect = {.errnos = {ECONNREFUSED}}},
                 {.name = "taken", .probe = Taken, .expect = {}},
                 {.name = "list", .python = kList, .expect = {}},
                 {.name = "listen", .probe = Listen, .judge_only = true},
                 {.name = "find", .probe = Find, .judge_only = true}},
    .judge = JudgeNeighbour,
});

}  // namespace

}  // namespace caisson::escape
