#include "egress/dns.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace caisson::egress {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr size_t kMaxWireName = 255;
constexpr uint16_t kTypeOpt = 41;
constexpr uint16_t kOurUdpBytes = 1232;

uint16_t Read16(std::span<const uint8_t> packet, size_t at) {
  return static_cast<uint16_t>(packet[at] << 8 | packet[at + 1]);
}

void Put16(std::vector<uint8_t>& out, unsigned value) {
  out.push_back(static_cast<uint8_t>(value >> 8));
  out.push_back(static_cast<uint8_t>(value));
}

void Put32(std::vector<uint8_t>& out, uint32_t value) {
  Put16(out, value >> 16);
  Put16(out, value & 0xffff);
}

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

// Returns the offset after the name, or 0. A question needs no compression, so pointers, which could
// form loops, are refused.
size_t ReadName(std::span<const uint8_t> packet, size_t at, std::string& name) {
  const size_t from = at;
  while (at < packet.size() && packet[at] != 0) {
    const size_t length = packet[at];
    if (length > 63 || at + 1 + length >= packet.size() || at + 1 + length - from >= kMaxWireName) return 0;
    if (!name.empty()) name.push_back('.');
    for (size_t i = 0; i < length; ++i) AppendByte(name, packet[at + 1 + i]);
    at += 1 + length;
  }
  return at < packet.size() ? at + 1 : 0;
}

// Reads an EDNS record that must end the packet. Its options are skipped, because questions are never forwarded.
bool ReadEdns(std::span<const uint8_t> packet, size_t at, DnsQuestion& question) {
  constexpr size_t kFixed = 11;  // root name, type, class, TTL, length
  if (packet.size() < at + kFixed || packet[at] != 0 || Read16(packet, at + 1) != kTypeOpt) return false;
  question.has_edns = true;
  question.edns_version = packet[at + 6];
  return packet.size() == at + kFixed + Read16(packet, at + 9);
}

void PutName(std::vector<uint8_t>& out, std::string_view name) {
  for (;;) {
    const size_t dot = std::min(name.find('.'), name.size());
    out.push_back(static_cast<uint8_t>(dot));
    for (size_t i = 0; i < dot; ++i) out.push_back(static_cast<uint8_t>(name[i]));
    if (dot == name.size()) break;
    name.remove_prefix(dot + 1);
  }
  out.push_back(0);
}

// Appends the record and returns whether there was one.
bool PutRecord(std::vector<uint8_t>& out, const DnsRecord& record) {
  if (std::holds_alternative<std::monostate>(record)) return false;
  std::vector<uint8_t> data;
  uint16_t type = kTypeA;
  if (const auto* four = std::get_if<AddressRecord>(&record)) {
    Put32(data, four->address);
  } else if (const auto* six = std::get_if<Ipv6Record>(&record)) {
    type = kTypeAaaa;
    data.assign(six->address.bytes.begin(), six->address.bytes.end());
  } else {
    type = kTypePtr;
    PutName(data, std::get<NameRecord>(record).name);
  }
  Put16(out, 0xc000 | kHeaderBytes);  // pointer to the question's name
  Put16(out, type);
  Put16(out, kClassIn);
  Put32(out, kAnswerTtl);
  Put16(out, static_cast<unsigned>(data.size()));
  out.insert(out.end(), data.begin(), data.end());
  return true;
}

std::optional<int> HexDigit(std::string_view label) {
  if (label.size() != 1) return std::nullopt;
  if (label[0] >= '0' && label[0] <= '9') return label[0] - '0';
  if (label[0] >= 'a' && label[0] <= 'f') return label[0] - 'a' + 10;
  return std::nullopt;
}

}  // namespace

PacketKind ParseQuestion(std::span<const uint8_t> packet, DnsQuestion& question) {
  if (packet.size() < kHeaderBytes || (packet[2] & 0x80) != 0) return PacketKind::kNothing;
  question.opcode = packet[2] >> 3 & 0xf;
  const uint16_t questions = Read16(packet, 4), answers = Read16(packet, 6), authorities = Read16(packet, 8),
                 additionals = Read16(packet, 10);
  if (questions != 1 || answers != 0 || authorities != 0 || additionals > 1) return PacketKind::kMalformed;
  const size_t at = ReadName(packet, kHeaderBytes, question.name);
  if (at == 0 || at + 4 > packet.size()) return PacketKind::kMalformed;
  question.type = Read16(packet, at);
  question.question_class = Read16(packet, at + 2);
  question.end = at + 4;
  const bool whole = additionals == 0 ? packet.size() == question.end : ReadEdns(packet, question.end, question);
  return whole ? PacketKind::kQuestion : PacketKind::kMalformed;
}

std::vector<uint8_t> MakeAnswer(std::span<const uint8_t> packet, const DnsQuestion& question, Rcode rcode,
                                const DnsRecord& record) {
  std::vector<uint8_t> answer(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(question.end));
  const bool bad_version = question.has_edns && question.edns_version != 0;
  answer[2] = static_cast<uint8_t>(0x80 | (answer[2] & 0x79));  // a response; opcode and "recursion desired" as asked
  answer[3] = static_cast<uint8_t>(0x80 | (bad_version ? 0 : static_cast<unsigned>(rcode)));  // recursion available
  std::fill(answer.begin() + 6, answer.begin() + kHeaderBytes, uint8_t{0});
  if (!bad_version && PutRecord(answer, record)) answer[7] = 1;
  if (question.has_edns) {
    answer[11] = 1;
    answer.push_back(0);
    Put16(answer, kTypeOpt);
    Put16(answer, kOurUdpBytes);
    Put32(answer, bad_version ? 0x01000000 : 0);  // the upper bits of BADVERS, which is 16
    Put16(answer, 0);
  }
  return answer;
}

std::vector<uint8_t> MakeFormErr(std::span<const uint8_t> packet) {
  std::vector<uint8_t> answer(kHeaderBytes);
  answer[0] = packet[0];
  answer[1] = packet[1];
  answer[2] = static_cast<uint8_t>(0x80 | (packet[2] & 0x79));
  answer[3] = static_cast<uint8_t>(0x80 | static_cast<unsigned>(Rcode::kFormErr));
  return answer;
}

std::optional<network::Address> ParseReverseName(std::string_view name) {
  std::vector<std::string_view> labels;
  for (;;) {
    const size_t dot = std::min(name.find('.'), name.size());
    labels.push_back(name.substr(0, dot));
    if (dot == name.size()) break;
    name.remove_prefix(dot + 1);
  }
  if (labels.size() < 3 || labels.back() != "arpa") return std::nullopt;
  const std::string_view zone = labels[labels.size() - 2];
  if (zone == "in-addr" && labels.size() == 6) {
    std::string text;
    for (size_t i = 4; i-- > 0;) text += std::string(labels[i]) + (i > 0 ? "." : "");
    return network::Address::Parse(text);
  }
  if (zone != "ip6" || labels.size() != 34) return std::nullopt;
  network::Address address;
  for (size_t i = 0; i < 32; ++i) {
    const std::optional<int> digit = HexDigit(labels[31 - i]);
    if (!digit) return std::nullopt;
    address.bytes[i / 2] = static_cast<uint8_t>(address.bytes[i / 2] << 4 | *digit);
  }
  return address;
}

}  // namespace caisson::egress
