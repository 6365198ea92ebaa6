// Frames between caisson-egress and its owner: a decoded frame encodes to the same bytes.
#include <string>
#include <string_view>

#include "base/check.h"
#include "egress/control/messages.h"
#include "target.h"

namespace {

template <typename... Messages>
void TryAll(std::string_view frame) {
  const auto one = [frame](auto message) {
    if (caisson::egress::control::Unpack(frame, message))
      CAISSON_CHECK(caisson::egress::control::Pack(message) == frame);
  };
  (one(Messages()), ...);
}

}  // namespace

CAISSON_FUZZ_TARGET(egress_control) {
  using namespace caisson::egress::control;
  TryAll<Settings, Rule, Grant, HostEntry, Nameserver, DnsSockets, ProxyListener, Start, Listener, Settle, Finish,
         Ready, Bind, Settled, Event, Totals, Fault>({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
