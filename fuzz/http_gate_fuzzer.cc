// The client's side of a plain HTTP connection: in one piece and in small ones the same bytes are forwarded.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "egress/http_gate.h"
#include "target.h"

CAISSON_FUZZ_TARGET(http_gate) {
  using namespace caisson::egress;
  if (size == 0 || size > 65536) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const size_t piece = bytes[0] % 16 + 1;
  const caisson::network::Host host = *caisson::network::Host::Parse("web.example");
  HttpGate whole(host, 80), parts(host, 80);
  const HttpGate::Verdict once = whole.Judge(text);
  CAISSON_CHECK(once.forward <= text.size());
  size_t forwarded = 0;
  int status = 0;
  for (size_t end = 0; end < text.size() && status == 0;) {
    end = std::min(end + piece, text.size());
    const HttpGate::Verdict verdict = parts.Judge(text.substr(forwarded, end - forwarded));
    CAISSON_CHECK(forwarded + verdict.forward <= end);
    forwarded += verdict.forward;
    status = verdict.status;
  }
  // Only a head above its limit may depend on how the bytes are split.
  CAISSON_CHECK(forwarded == once.forward && (status != 0) == (once.status != 0));
  return 0;
}
