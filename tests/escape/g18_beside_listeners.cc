// Connections that no allowed name and port stands for: another port of an allowed name, an address of the pool that
// stands for nothing, the sandbox's own loopback at the port of an allowed name, and an address of the internet.
#include <cerrno>

#include "escape/egress_probe.h"
#include "escape/row.h"

namespace caisson::escape {

namespace {

constexpr char kFind[] =
    "address = look_up('api.example.com')\nif not address: not_applicable('the name is not found')\n";

Attempt Reach(const char* name, const std::string& where, bool is_violation, int error) {
  return {.name = name,
          .python = std::string(kEgressPrelude) + kFind + "reach(" + where + ", hello(b'api.example.com'))",
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.errnos = {error},
                     .reports = is_violation ? std::vector<Report>{{"NetworkAccessViolation", "net.connect"}}
                                             : std::vector<Report>{}},
          .flags = AllowlistFlags()};
}

const Registration kRow(Row{
    .id = "G18",
    .title = "connections beside the listeners of an allowlist",
    .severity = Severity::kExfiltration,
    .walls = {"exact listener", "network namespace"},
    .attempts = {Reach("other-port", "address, 444", true, ECONNREFUSED),
                 Reach("other-address", "'198.18.77.77', 443", true, ECONNREFUSED),
                 Reach("own-loopback", "'127.0.0.1', 443", false, ECONNREFUSED)},
});

}  // namespace

}  // namespace caisson::escape
