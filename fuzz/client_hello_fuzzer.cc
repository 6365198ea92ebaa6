// The first bytes of a TLS connection. A decision does not change when more bytes arrive, and a name holds only bytes
// that names may have. What passes before the server's answer, and after one that asks for a second ClientHello, is the
// same whether the bytes come at once or in two parts.
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
  CAISSON_CHECK(whole.size <= size && (whole.state == State::kWhole) == (whole.size != 0));
  for (const bool answered : {false, true}) {
    constexpr uint8_t kShort[] = {22, 3, 3, 0, 1, 2};  // a record that may begin a request for a second one
    SecondHello once("a.test", whole.size), twice("a.test", whole.size);
    if (answered) CAISSON_CHECK(once.ReadAnswer(kShort) && twice.ReadAnswer(kShort));
    const SecondHello::Verdict all = once.Judge({bytes, size});
    const SecondHello::Verdict first = twice.Judge({bytes, size / 2});
    CAISSON_CHECK(all.forward <= size && first.forward <= all.forward);
    if (first.mismatch || (first.state != State::kMore && first.state != State::kWhole)) continue;
    const SecondHello::Verdict second = twice.Judge({bytes + first.forward, size - first.forward});
    CAISSON_CHECK(first.forward + second.forward == all.forward && second.mismatch == all.mismatch);
  }
  return 0;
}
