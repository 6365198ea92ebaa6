#include "escape/runtimes.h"

#include <map>
#include <utility>

namespace caisson::escape {

namespace {

// By runtime and row.
const std::map<std::pair<std::string, std::string>, const char*> kSenseless = {
    {{"oci", "A25"}, "the agent cannot read such a process: its calls fail with EFAULT and are reported as unreadable"},
    {{"oci", "E09"}, "the sandbox's processes are not children of the caller; oci_test kills their owner"},
    {{"oci", "G17"}, "the runtime has no network allowlist"},
    {{"oci", "G18"}, "the runtime has no network allowlist"},
    {{"gvisor", "E09"}, "the sandbox's processes are not children of the caller; gvisor_test kills their owner"},
    {{"gvisor", "G17"}, "the runtime has no network allowlist"},
    {{"gvisor", "G18"}, "the runtime has no network allowlist"},
};

}  // namespace

const std::vector<std::string>& RuntimeNames() {
  static const std::vector<std::string> names = {"native", "container", "oci", "gvisor", "microvm", "kubernetes"};
  return names;
}

std::string WhyNotIn(const std::string& runtime, const std::string& row) {
  const auto found = kSenseless.find({runtime, row});
  return found == kSenseless.end() ? "" : found->second;
}

ParkedSetup ExpectIn(const std::string& runtime, ParkedSetup expect) {
  if (runtime != "gvisor") return expect;
  expect.errnos.clear();
  if (expect.death == Death::kNever) expect.death = Death::kPossible;
  return expect;
}

}  // namespace caisson::escape
