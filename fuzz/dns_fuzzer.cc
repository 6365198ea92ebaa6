// The DNS question reader, and the answer made from what it accepted.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sandbox/dns.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> packet(data, size);
  const auto question = caisson::sandbox::ParseDnsQuery(packet);
  const auto answer = caisson::sandbox::MakeNoSuchName(packet);
  // An answer exists exactly for what was understood, repeats its id and is never longer than the query.
  if (question.has_value() == answer.empty()) std::abort();
  if (question && (answer.size() > size || answer[0] != data[0] || (answer[2] & 0x80) == 0)) std::abort();
  if (question && question->name.size() > 4 * 255) std::abort();
  return 0;
}
