// Makes questions to real DNS servers and decides which parts of their replies to believe. Only the resolver process
// uses this file, because the bytes come from the internet.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "network/address.h"

namespace caisson::egress {

// Makes a question for an absolute, normalized name, with EDNS so that large answers fit.
std::vector<uint8_t> MakeQuery(uint16_t id, std::string_view name, uint16_t type);

struct DnsReply {
  enum class State : uint8_t {
    kUnrelated,  // not the reply to this question; ignore it
    kFailed,     // the server has no answer; another server may
    kAnswered,   // the reply holds the addresses, possibly none
  };
  State state = State::kUnrelated;
  std::vector<network::Address> addresses;
  uint32_t ttl = 0;  // the smallest TTL of the records used
};

inline constexpr size_t kMaxAddresses = 32;

// Follows aliases inside the reply. `type` is A or AAAA.
DnsReply ParseReply(std::span<const uint8_t> packet, uint16_t id, std::string_view name, uint16_t type);

}  // namespace caisson::egress
