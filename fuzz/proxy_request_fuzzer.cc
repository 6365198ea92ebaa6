// CONNECT and SOCKS: what is accepted is a destination in its one spelling, and parsing ends.
#include <string_view>

#include "base/check.h"
#include "egress/proxy_request.h"
#include "network/name.h"
#include "target.h"

CAISSON_FUZZ_TARGET(proxy_request) {
  using namespace caisson::egress;
  std::string_view text(reinterpret_cast<const char*>(bytes), size);
  ProxyRequest request;
  for (int steps = 0;; ++steps) {
    CAISSON_CHECK(steps < 3);
    const ProxyStep step = request.Parse(text);
    CAISSON_CHECK(step.consumed <= text.size());
    if (step.state == ProxyStep::State::kReply) {
      CAISSON_CHECK(step.consumed > 0 && !step.reply.empty());
      text.remove_prefix(step.consumed);
      continue;
    }
    if (step.state == ProxyStep::State::kRefused) CAISSON_CHECK(!step.reply.empty() && step.reason[0] != '\0');
    if (step.state == ProxyStep::State::kDestination) {
      const caisson::network::Host& host = step.destination.host;
      CAISSON_CHECK(step.destination.port != 0 && !host.name.empty());
      CAISSON_CHECK(host.address ? host.address->Text() == host.name
                                 : *caisson::network::NormalizeName(host.name) == host.name);
    }
    return 0;
  }
}
