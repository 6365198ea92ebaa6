#include "sandbox/dns.h"

#include <algorithm>
#include <array>

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

// Returns the offset just past the question, or 0 when the question is malformed. A question needs no compression, so a
// compression pointer is refused.
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

constexpr uint8_t kNoError = 0, kNoSuchName = 3;
constexpr uint16_t kAddress = 1, kPointer = 12, kAddress6 = 28;
constexpr std::array<uint8_t, 4> kLoopbackAddress = {127, 0, 0, 1}, kHostAddress = {127, 0, 1, 1};  // as in /etc/hosts
constexpr std::array<uint8_t, 16> kLoopbackAddress6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr std::array<uint8_t, 11> kLocalhostLabels = {9, 'l', 'o', 'c', 'a', 'l', 'h', 'o', 's', 't', 0};

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool IsLocalhost(std::string_view name) {
  static constexpr std::string_view kNames[] = {"localhost",  "ip6-localhost", "ip6-loopback",
                                                "localhost4", "localhost6",    "localhost.localdomain"};
  return EndsWith(name, ".localhost") || std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// The names under which 127.0.0.0/8 and ::1 are looked up, and the two addresses that mean any address of this machine.
bool IsLoopbackAddress(std::string_view name) {
  constexpr std::string_view kFour = ".127.in-addr.arpa", kSix = "ip6.arpa";
  if (name == "0.0.0.0.in-addr.arpa") return true;
  if (EndsWith(name, kFour)) {
    const std::string_view parts = name.substr(0, name.size() - kFour.size());
    return std::count(parts.begin(), parts.end(), '.') == 2 &&
           std::all_of(parts.begin(), parts.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  }
  if (name.size() != 64 + kSix.size() || !EndsWith(name, kSix) || (name[0] != '0' && name[0] != '1')) return false;
  for (size_t i = 1; i < 64; ++i) {
    if (name[i] != (i % 2 == 0 ? '0' : '.')) return false;
  }
  return true;
}

std::vector<uint8_t> BeginAnswer(std::span<const uint8_t> query, size_t question_end, uint8_t code) {
  std::vector<uint8_t> answer(query.begin(), query.begin() + static_cast<std::ptrdiff_t>(question_end));
  answer[2] = static_cast<uint8_t>(0x80 | (answer[2] & 0x79));  // a response; opcode and "recursion desired" as asked
  answer[3] = static_cast<uint8_t>(0x80 | code);                // recursion available
  std::fill(answer.begin() + 6, answer.begin() + kHeaderSize, uint8_t{0});  // no answers, authorities, additionals
  return answer;
}

void AppendRecord(std::vector<uint8_t>& answer, uint16_t type, std::span<const uint8_t> data) {
  ++answer[7];
  // The name is a pointer to the question's name. Class IN, an hour to live.
  for (const size_t byte : {size_t{0xc0}, kHeaderSize, size_t{0}, size_t{type}, size_t{0}, size_t{1}, size_t{0},
                            size_t{0}, size_t{0x0e}, size_t{0x10}, size_t{0}, data.size()})
    answer.push_back(static_cast<uint8_t>(byte));
  answer.insert(answer.end(), data.begin(), data.end());
}

}  // namespace

std::optional<DnsQuestion> ParseDnsQuery(std::span<const uint8_t> packet) {
  DnsQuestion question;
  if (ReadQuestion(packet, question) == 0) return std::nullopt;
  return question;
}

std::optional<std::vector<uint8_t>> AnswerLocally(std::span<const uint8_t> query, std::string_view hostname) {
  DnsQuestion question;
  const size_t end = ReadQuestion(query, question);
  if (end == 0) return std::nullopt;
  const std::string name = LowerCase(question.name);
  const bool is_host = name == LowerCase(hostname);
  const bool is_loopback_address = IsLoopbackAddress(name);
  if (!is_host && !is_loopback_address && !IsLocalhost(name)) return std::nullopt;
  std::vector<uint8_t> answer = BeginAnswer(query, end, kNoError);
  if (is_loopback_address) {
    if (question.type == kPointer) AppendRecord(answer, kPointer, kLocalhostLabels);
  } else if (question.type == kAddress) {
    AppendRecord(answer, kAddress, is_host ? kHostAddress : kLoopbackAddress);
  } else if (question.type == kAddress6) {
    AppendRecord(answer, kAddress6, kLoopbackAddress6);
  }
  return answer;
}

std::vector<uint8_t> MakeNoSuchName(std::span<const uint8_t> query) {
  DnsQuestion question;
  const size_t end = ReadQuestion(query, question);
  return end == 0 ? std::vector<uint8_t>() : BeginAnswer(query, end, kNoSuchName);
}

RefusedLookUp RefuseLookUp(std::span<const uint8_t> query) {
  const auto question = ParseDnsQuery(query);
  RefusedLookUp refused;
  Violation& violation = refused.violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = "net.dns";
  violation.suggestion = "the sandbox has no network; names other than localhost do not resolve";
  if (question) {
    violation.evidence.emplace_back("name", question->name);
    violation.evidence.emplace_back("record_type", int64_t{question->type});
    refused.answer = MakeNoSuchName(query);
  } else {
    violation.evidence.emplace_back("malformed_query_bytes", static_cast<int64_t>(query.size()));
  }
  return refused;
}

}  // namespace caisson::sandbox
