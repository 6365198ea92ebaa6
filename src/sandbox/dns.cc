#include "sandbox/dns.h"

#include <algorithm>

namespace caisson::sandbox {

namespace {

constexpr size_t kHeaderSize = 12;
constexpr size_t kMaxNameSize = 255;

bool IsPlain(uint8_t byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '-' ||
         byte == '_';
}

void AppendByte(std::string& name, uint8_t byte) {
  if (IsPlain(byte)) {
    name.push_back(static_cast<char>(byte));
    return;
  }
  name.push_back('\\');
  for (const int divisor : {100, 10, 1}) name.push_back(static_cast<char>('0' + byte / divisor % 10));
}

// The offset just past the question, or 0 when it is malformed. A question needs no compression, so a pointer is
// refused.
size_t ReadQuestion(std::span<const uint8_t> packet, DnsQuestion& question) {
  if (packet.size() < kHeaderSize) return 0;
  const bool is_query = (packet[2] & 0x80) == 0;
  const unsigned questions = static_cast<unsigned>(packet[4]) << 8 | packet[5];
  if (!is_query || questions != 1) return 0;
  size_t at = kHeaderSize;
  while (at < packet.size() && packet[at] != 0) {
    const size_t length = packet[at];
    if (length > 63 || at + 1 + length > packet.size() || at + 1 + length - kHeaderSize > kMaxNameSize) return 0;
    if (!question.name.empty()) question.name.push_back('.');
    for (size_t i = 0; i < length; ++i) AppendByte(question.name, packet[at + 1 + i]);
    at += 1 + length;
  }
  if (at + 5 > packet.size()) return 0;  // the root label, type and class
  question.type = static_cast<uint16_t>(packet[at + 1] << 8 | packet[at + 2]);
  return at + 5;
}

}  // namespace

std::optional<DnsQuestion> ParseDnsQuery(std::span<const uint8_t> packet) {
  DnsQuestion question;
  if (ReadQuestion(packet, question) == 0) return std::nullopt;
  return question;
}

std::vector<uint8_t> MakeNoSuchName(std::span<const uint8_t> query) {
  DnsQuestion question;
  const size_t end = ReadQuestion(query, question);
  std::vector<uint8_t> answer(query.begin(), query.begin() + static_cast<std::ptrdiff_t>(end));
  if (answer.empty()) return answer;
  answer[2] = static_cast<uint8_t>(0x80 | (answer[2] & 0x79));  // a response; opcode and "recursion desired" as asked
  answer[3] = 0x83;                                             // recursion available, NXDOMAIN
  std::fill(answer.begin() + 6, answer.begin() + kHeaderSize, uint8_t{0});  // no answers, authorities, additionals
  return answer;
}

}  // namespace caisson::sandbox
