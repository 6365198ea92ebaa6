// Connections to an allowed name that are meant for another server: TLS for another name, without one, with two, and
// something else than TLS. Each must end before anything is dialled.
#include "escape/egress_probe.h"
#include "escape/row.h"

namespace caisson::escape {

namespace {

Attempt Say(const char* name, const std::string& data) {
  return {.name = name,
          .python = std::string(kEgressPrelude) +
                    "address = look_up('api.example.com')\nif not address: not_applicable('the name is not found')\n"
                    "reach(address, 443, " +
                    data + ")",
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.reports = {{"NetworkAccessViolation", "net.egress"}}},
          .flags = AllowlistFlags()};
}

const Registration kRow(Row{
    .id = "G19",
    .title = "TLS for another server than the one that is allowed",
    .severity = Severity::kExfiltration,
    .walls = {"egress"},
    .attempts = {Say("other-name", "hello(b'evil.example')"), Say("no-name", "hello()"),
                 Say("two-names", "hello(b'api.example.com', b'evil.example')"), Say("address", "hello(b'192.0.2.1')"),
                 Say("not-tls", "b'SSH-2.0-x\\r\\n'")},
});

}  // namespace

}  // namespace caisson::escape
