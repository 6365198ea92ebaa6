// The resolver process turns names that policy has allowed into addresses. It holds only sockets to DNS servers. The
// relay process therefore never parses a reply from the internet, and the resolver never sees any bytes of the sandbox
// except normalized names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "egress/control/messages.h"
#include "network/address.h"

namespace caisson::egress {

struct ResolverSettings {
  std::multimap<std::string, network::Address> hosts;  // names that need no DNS
  std::vector<std::pair<network::Address, uint16_t>> nameservers;
};

// Adds the contents of /etc/hosts and /etc/resolv.conf. Search domains are not used, because names in rules are
// absolute.
void AddSystemSettings(ResolverSettings& settings);

// Frames between the two processes, packed like those of egress/control.
struct Question {
  static constexpr control::Kind kKind = static_cast<control::Kind>(64);
  uint32_t id = 0;
  std::string name;
  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Text(name);
  }
};
struct Answer {
  static constexpr control::Kind kKind = static_cast<control::Kind>(65);
  uint32_t id = 0;
  uint8_t failed = 0;  // no server had an answer
  uint32_t ttl = 0;
  std::string addresses;  // 16 bytes each
  template <typename Side>
  void Describe(Side& side) {
    side.Number(id), side.Number(failed), side.Number(ttl), side.Text(addresses);
  }
};

// Answers questions on `socket` until its other end is closed.
void RunResolver(int socket, const ResolverSettings& settings);

}  // namespace caisson::egress
