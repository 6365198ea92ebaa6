// The DNS question reader, and the answer made from what it accepted.
#include <cstdlib>

#include "sandbox/dns.h"
#include "target.h"

CAISSON_FUZZ_TARGET(dns) {
  const std::span<const uint8_t> packet(bytes, size);
  const auto question = caisson::sandbox::ParseDnsQuery(packet);
  const auto answer = caisson::sandbox::MakeNoSuchName(packet);
  // An answer exists exactly for what was understood, repeats its id and is never longer than the query.
  if (question.has_value() == answer.empty()) std::abort();
  if (question && (answer.size() > size || answer[0] != bytes[0] || (answer[2] & 0x80) == 0)) std::abort();
  if (question && question->name.size() > 4 * 255) std::abort();
  return 0;
}
