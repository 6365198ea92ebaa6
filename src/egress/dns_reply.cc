#include "egress/dns_reply.h"

#include <algorithm>
#include <string>

#include "egress/dns.h"

namespace caisson::egress {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr uint16_t kTypeCname = 5;
constexpr int kMaxAliases = 16;

uint16_t Read16(std::span<const uint8_t> packet, size_t at) {
  return static_cast<uint16_t>(packet[at] << 8 | packet[at + 1]);
}
uint32_t Read32(std::span<const uint8_t> packet, size_t at) {
  return uint32_t{Read16(packet, at)} << 16 | Read16(packet, at + 2);
}

// Returns the offset after a name that may be compressed, or 0. Pointers only lead backwards, so reading always ends.
size_t ReadName(std::span<const uint8_t> packet, size_t at, std::string& name) {
  size_t end = 0, limit = at;
  name.clear();
  while (at < packet.size()) {
    const size_t length = packet[at];
    if (length == 0) return end != 0 ? end : at + 1;
    if (length >= 0xc0) {
      if (at + 1 >= packet.size()) return 0;
      const size_t target = (length & 0x3f) << 8 | packet[at + 1];
      if (target >= limit) return 0;
      if (end == 0) end = at + 2;
      at = limit = target;
      continue;
    }
    if (length > 63 || at + 1 + length > packet.size() || name.size() + length > 255) return 0;
    if (!name.empty()) name.push_back('.');
    for (size_t i = 0; i < length; ++i) {
      const uint8_t c = packet[at + 1 + i];
      name.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c == '.' ? 0 : c));
    }
    at += 1 + length;
  }
  return 0;
}

struct Record {
  std::string owner;
  uint16_t type = 0;
  uint32_t ttl = 0;
  std::string alias;
  network::Address address;
};

// Returns false when the packet ends too early.
bool ReadRecord(std::span<const uint8_t> packet, size_t& at, Record& record) {
  at = ReadName(packet, at, record.owner);
  if (at == 0 || at + 10 > packet.size()) return false;
  record.type = Read16(packet, at);
  const uint16_t record_class = Read16(packet, at + 2);
  record.ttl = Read32(packet, at + 4);
  const size_t size = Read16(packet, at + 8);
  at += 10;
  if (at + size > packet.size()) return false;
  const size_t data = at;
  at += size;
  if (record_class != kClassIn) {
    record.type = 0;
  } else if (record.type == kTypeCname) {
    return ReadName(packet, data, record.alias) == at;
  } else if (record.type == kTypeA) {
    if (size != 4) return false;
    record.address = network::Address::FromIpv4(Read32(packet, data));
  } else if (record.type == kTypeAaaa) {
    if (size != 16) return false;
    record.address = network::Address::FromBytes(packet.data() + data);
  }
  return true;
}

}  // namespace

std::vector<uint8_t> MakeQuery(uint16_t id, std::string_view name, uint16_t type) {
  std::vector<uint8_t> packet = {static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id), 1, 0, 0, 1, 0, 0, 0, 0, 0, 1};
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    packet.push_back(static_cast<uint8_t>(dot));
    packet.insert(packet.end(), name.begin(), name.begin() + static_cast<std::ptrdiff_t>(dot));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  const uint8_t tail[] = {0, 0, static_cast<uint8_t>(type), 0, kClassIn, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0};
  packet.insert(packet.end(), std::begin(tail), std::end(tail));
  return packet;
}

DnsReply ParseReply(std::span<const uint8_t> packet, uint16_t id, std::string_view name, uint16_t type) {
  DnsReply reply;
  if (packet.size() < kHeaderBytes || Read16(packet, 0) != id || (packet[2] & 0x80) == 0 || Read16(packet, 4) != 1)
    return reply;
  std::string asked;
  size_t at = ReadName(packet, kHeaderBytes, asked);
  if (at == 0 || at + 4 > packet.size() || asked != name || Read16(packet, at) != type) return reply;
  at += 4;
  reply.state = DnsReply::State::kFailed;
  const unsigned rcode = packet[3] & 0xf;
  const bool truncated = (packet[2] & 2) != 0;
  if (rcode == static_cast<unsigned>(Rcode::kNxDomain)) {
    reply.state = DnsReply::State::kAnswered;
    return reply;
  }
  if (rcode != 0) return reply;
  std::vector<Record> records;
  for (unsigned count = Read16(packet, 6); count > 0; --count) {
    Record record;
    if (!ReadRecord(packet, at, record)) {
      if (truncated) break;
      return reply;
    }
    records.push_back(std::move(record));
  }
  std::string current(name);
  uint32_t ttl = UINT32_MAX;
  for (int aliases = 0; aliases < kMaxAliases; ++aliases) {
    const auto alias = std::find_if(records.begin(), records.end(), [&](const Record& record) {
      return record.type == kTypeCname && record.owner == current;
    });
    if (alias == records.end()) break;
    current = alias->alias;
    ttl = std::min(ttl, alias->ttl);
  }
  for (const Record& record : records) {
    if (record.type != type || record.owner != current || reply.addresses.size() == kMaxAddresses) continue;
    reply.addresses.push_back(record.address);
    ttl = std::min(ttl, record.ttl);
  }
  // A truncated answer without an address says nothing. A truncated answer with addresses is enough: each is judged.
  if (truncated && reply.addresses.empty()) return reply;
  reply.state = DnsReply::State::kAnswered;
  reply.ttl = reply.addresses.empty() ? 0 : ttl;
  return reply;
}

}  // namespace caisson::egress
