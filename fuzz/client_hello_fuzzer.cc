// The first bytes of a TLS connection. A decision does not change when more bytes arrive, and a name holds only bytes
// that names may have.
#include <algorithm>

#include "base/check.h"
#include "egress/client_hello.h"
#include "target.h"

CAISSON_FUZZ_TARGET(client_hello) {
  using namespace caisson::egress;
  using State = ClientHello::State;
  const ClientHello whole = ParseClientHello({bytes, size});
  CAISSON_CHECK(whole.state == State::kWhole || whole.name.empty());
  for (const char c : whole.name) CAISSON_CHECK(c > 0x20 && c < 0x7f && !(c >= 'A' && c <= 'Z'));
  if (size >= kMaxClientHelloBytes) CAISSON_CHECK(whole.state != State::kMore);
  const ClientHello half = ParseClientHello({bytes, size / 2});
  if (half.state != State::kMore) CAISSON_CHECK(half.state == whole.state && half.name == whole.name);
  return 0;
}
