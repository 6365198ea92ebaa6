// The reader of DNS questions, and the answer made from an accepted question.
#include <cstdlib>

#include "sandbox/dns.h"
#include "target.h"

CAISSON_FUZZ_TARGET(dns) {
  const std::span<const uint8_t> packet(bytes, size);
  const auto question = caisson::sandbox::ParseDnsQuery(packet);
  const auto answer = caisson::sandbox::MakeNoSuchName(packet);
  // An answer exists exactly for a question that was understood, repeats its id and is never longer than the query.
  if (question.has_value() == answer.empty()) std::abort();
  if (question && (answer.size() > size || answer[0] != bytes[0] || (answer[2] & 0x80) == 0)) std::abort();
  if (question && question->name.size() > 4 * 255) std::abort();
  // An answer about the sandbox itself has at most one record, and only an understood question gets one.
  const auto local = caisson::sandbox::AnswerLocally(packet, "caisson");
  if (local && (!question || local->size() > answer.size() + 12 + 16 || (*local)[7] > 1)) std::abort();
  return 0;
}
