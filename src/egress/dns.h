// DNS as the sandbox sees it: egress reads questions and makes up the answers. It never forwards anything. The bytes
// come from the workload and are hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "network/address.h"

namespace caisson::egress {

inline constexpr uint16_t kTypeA = 1, kTypePtr = 12, kTypeAaaa = 28;
inline constexpr uint16_t kClassIn = 1;
inline constexpr uint32_t kAnswerTtl = 30;
inline constexpr size_t kMaxQueryBytes = 1232;  // EDNS allows this much without fragments; TCP has the same limit

enum class Rcode : uint8_t { kNoError = 0, kFormErr = 1, kServFail = 2, kNxDomain = 3, kNotImp = 4, kRefused = 5 };

struct DnsQuestion {
  std::string name;  // labels joined with dots; bytes that are not letters, digits, '-' or '_' as \NNN
  uint16_t type = 0;
  uint16_t question_class = 0;
  uint8_t opcode = 0;
  bool has_edns = false;
  uint8_t edns_version = 0;
  size_t end = 0;  // offset of the question's end in the packet
};

// The kind of a packet. A query is a packet with exactly one question, without compression and with at most one further
// record, which must be an EDNS record.
enum class PacketKind : uint8_t {
  kQuestion,
  kMalformed,  // has a header, so it is answered with FORMERR
  kNothing,    // too short, or itself an answer: dropped, because two answering programs could talk forever
};
PacketKind ParseQuestion(std::span<const uint8_t> packet, DnsQuestion& question);

// One address record of the answer.
struct AddressRecord {
  uint32_t address = 0;  // IPv4, host order
};
struct Ipv6Record {
  network::Address address;
};
struct NameRecord {
  std::string name;  // normalized
};
using DnsRecord = std::variant<std::monostate, AddressRecord, Ipv6Record, NameRecord>;

// Makes the answer to a packet in which ParseQuestion found a question. NOERROR without a record means that the name
// exists and has no record of this type.
std::vector<uint8_t> MakeAnswer(std::span<const uint8_t> packet, const DnsQuestion& question, Rcode rcode,
                                const DnsRecord& record = {});
// Makes the answer to a packet of kind kMalformed.
std::vector<uint8_t> MakeFormErr(std::span<const uint8_t> packet);

// Returns the address that a name below in-addr.arpa or ip6.arpa stands for. `name` is normalized.
std::optional<network::Address> ParseReverseName(std::string_view name);

}  // namespace caisson::egress
