// IP addresses, and which of them a connection on behalf of an untrusted party may reach. The callbacks of the service
// and the destinations of sandboxes share this implementation.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::network {

// IPv4 is stored as ::ffff:a.b.c.d, so the two spellings of one address are equal.
struct Address {
  std::array<uint8_t, 16> bytes{};

  static Address FromIpv4(uint32_t host_order);
  static Address FromBytes(const void* sixteen);
  // Returns nothing for families other than IPv4 and IPv6.
  static std::optional<Address> FromSockaddr(const sockaddr* address);
  // Strict: four decimal numbers without leading zeros, or IPv6 without brackets and zone.
  static std::optional<Address> Parse(std::string_view text);

  bool is_ipv4() const;
  uint32_t ipv4() const;  // in host order; only for IPv4
  // "192.0.2.1", "2001:db8::1".
  std::string Text() const;
  // Fills in a sockaddr of the right family and returns its size.
  socklen_t ToSockaddr(uint16_t port, sockaddr_storage& storage) const;

  bool operator==(const Address& other) const { return bytes == other.bytes; }
  bool operator<(const Address& other) const { return bytes < other.bytes; }
};

struct AddressRange {
  Address prefix;
  int bits = 0;  // of 128

  // "10.1.0.0/16", "::1", "192.0.2.7". Bits after the prefix are ignored.
  static Result<AddressRange> Parse(std::string_view text);
  bool Holds(const Address& address) const;
};

enum class AddressClass : uint8_t {
  kPublic,
  kUnspecified,  // 0.0.0.0/8, ::
  kLoopback,
  kPrivate,    // RFC 1918, unique local
  kLinkLocal,  // includes site-local
  kShared,     // carrier-grade NAT, 100.64.0.0/10
  kMetadata,   // where clouds serve the machine's credentials
  kMulticast,
  kBenchmark,  // 198.18.0.0/15, which sandboxes use for names
  kReserved,   // documentation, 240.0.0.0/4, tunnels, all unassigned ranges
};
inline constexpr int kAddressClassCount = 10;
// "loopback", "metadata".
const char* ClassName(AddressClass address_class);

// An IPv6 address that carries an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) has the worse class of the
// two.
AddressClass Classify(const Address& address);

// Allows public addresses and the ranges in `granted`. Metadata addresses cannot be granted: a range that an operator
// lists for another reason (169.254.0.0/16) must not expose the machine's credentials.
class AddressRules {
 public:
  static Result<AddressRules> Make(const std::vector<std::string>& granted);

  bool Allows(const Address& address) const;
  bool Grants(const Address& address) const;  // `granted` contains the address, whatever its class
  bool Allows(const sockaddr* address) const;

 private:
  std::vector<AddressRange> granted_;
};

}  // namespace caisson::network
