#include "network/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "base/words.h"

namespace caisson::network {
namespace {

struct ClassOfRange {
  const char* range;
  AddressClass address_class;
};

// The first range that contains an address gives its class. The ranges come from the registries of special addresses
// (RFC 6890 and its successors) and, for metadata, from the documentation of the cloud providers.
constexpr ClassOfRange kIpv4Ranges[] = {
    {"169.254.169.254", AddressClass::kMetadata},  // most clouds
    {"169.254.170.2", AddressClass::kMetadata},    // Amazon ECS
    {"169.254.170.23", AddressClass::kMetadata},   // Amazon EKS
    {"100.100.100.200", AddressClass::kMetadata},  // Alibaba
    {"192.0.0.192", AddressClass::kMetadata},      // Oracle
    {"168.63.129.16", AddressClass::kMetadata},    // Azure, inside a range of public addresses
    {"0.0.0.0/8", AddressClass::kUnspecified},    {"10.0.0.0/8", AddressClass::kPrivate},
    {"100.64.0.0/10", AddressClass::kShared},     {"127.0.0.0/8", AddressClass::kLoopback},
    {"169.254.0.0/16", AddressClass::kLinkLocal}, {"172.16.0.0/12", AddressClass::kPrivate},
    {"192.0.0.0/24", AddressClass::kReserved},    {"192.0.2.0/24", AddressClass::kReserved},
    {"192.88.99.0/24", AddressClass::kReserved},  {"192.168.0.0/16", AddressClass::kPrivate},
    {"198.18.0.0/15", AddressClass::kBenchmark},  {"198.51.100.0/24", AddressClass::kReserved},
    {"203.0.113.0/24", AddressClass::kReserved},  {"224.0.0.0/4", AddressClass::kMulticast},
    {"240.0.0.0/4", AddressClass::kReserved},
};
constexpr ClassOfRange kIpv6Ranges[] = {
    {"fd00:ec2::254", AddressClass::kMetadata},  // Amazon EC2
    {"fd00:ec2::23", AddressClass::kMetadata},   // Amazon EKS
    {"fd20:ce::254", AddressClass::kMetadata},   // Google
    {"::", AddressClass::kUnspecified},         {"::1", AddressClass::kLoopback},
    {"fe80::/10", AddressClass::kLinkLocal},    {"fec0::/10", AddressClass::kLinkLocal},
    {"fc00::/7", AddressClass::kPrivate},       {"ff00::/8", AddressClass::kMulticast},
    {"64:ff9b::/96", AddressClass::kPublic},  // NAT64: the embedded IPv4 address decides
    {"2001::/23", AddressClass::kReserved},     {"2001:db8::/32", AddressClass::kReserved},
    {"2002::/16", AddressClass::kReserved},     {"3fff::/20", AddressClass::kReserved},
    {"2000::/3", AddressClass::kPublic},        {"::/0", AddressClass::kReserved},
};

struct ParsedRange {
  AddressRange range;
  AddressClass address_class;
};

template <size_t N>
std::vector<ParsedRange> ParseAll(const ClassOfRange (&ranges)[N]) {
  std::vector<ParsedRange> parsed;
  for (const ClassOfRange& one : ranges) parsed.push_back({*AddressRange::Parse(one.range), one.address_class});
  return parsed;
}

AddressClass FindClass(const std::vector<ParsedRange>& ranges, const Address& address) {
  for (const ParsedRange& one : ranges)
    if (one.range.Holds(address)) return one.address_class;
  return AddressClass::kPublic;
}

AddressClass ClassifyIpv4(uint32_t host_order) {
  static const std::vector<ParsedRange> ranges = ParseAll(kIpv4Ranges);
  return FindClass(ranges, Address::FromIpv4(host_order));
}

uint32_t Read32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Returns the IPv4 address inside an IPv6 address that has one of the embedding forms.
std::optional<uint32_t> Embedded(const Address& address) {
  const uint8_t* b = address.bytes.data();
  const auto zero = [b](int from, int to) { return std::all_of(b + from, b + to, [](uint8_t c) { return c == 0; }); };
  const uint32_t first = Read32(b);
  if (first >> 16 == 0x2002) return Read32(b + 2);                           // 6to4
  if (first == 0x20010000) return ~Read32(b + 12);                           // Teredo: the client's address, inverted
  if (first == 0x0064ff9b && zero(4, 12)) return Read32(b + 12);             // NAT64, RFC 6052
  if (first == 0x0064ff9b && b[4] == 0 && b[5] == 1) return Read32(b + 12);  // NAT64, RFC 8215, with the usual /96
  if (zero(0, 8) && b[8] == 0xff && b[9] == 0xff && b[10] == 0 && b[11] == 0) return Read32(b + 12);  // SIIT
  if (zero(0, 12) && Read32(b + 12) > 0xffff) return Read32(b + 12);  // compatible, RFC 4291
  return std::nullopt;
}

}  // namespace

Address Address::FromIpv4(uint32_t host_order) {
  Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  for (int i = 0; i < 4; ++i)
    address.bytes[static_cast<size_t>(12 + i)] = static_cast<uint8_t>(host_order >> (24 - 8 * i));
  return address;
}

Address Address::FromBytes(const void* sixteen) {
  Address address;
  std::memcpy(address.bytes.data(), sixteen, address.bytes.size());
  return address;
}

std::optional<Address> Address::FromSockaddr(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, address, sizeof(four));
    return FromIpv4(ntohl(four.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, address, sizeof(six));
    return FromBytes(&six.sin6_addr);
  }
  return std::nullopt;
}

std::optional<Address> Address::Parse(std::string_view text) {
  if (text.size() >= INET6_ADDRSTRLEN || text.find('\0') != std::string_view::npos) return std::nullopt;
  const std::string terminated(text);
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, terminated.c_str(), &four) == 1) return FromIpv4(ntohl(four.s_addr));
  if (::inet_pton(AF_INET6, terminated.c_str(), &six) == 1) return FromBytes(&six);
  return std::nullopt;
}

bool Address::is_ipv4() const {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t b) { return b == 0; }) && bytes[10] == 0xff &&
         bytes[11] == 0xff;
}

uint32_t Address::ipv4() const { return Read32(bytes.data() + 12); }

std::string Address::Text() const {
  char text[INET6_ADDRSTRLEN];
  const bool four = is_ipv4();
  ::inet_ntop(four ? AF_INET : AF_INET6, bytes.data() + (four ? 12 : 0), text, sizeof(text));
  return text;
}

socklen_t Address::ToSockaddr(uint16_t port, sockaddr_storage& storage) const {
  storage = {};
  if (is_ipv4()) {
    auto* four = reinterpret_cast<sockaddr_in*>(&storage);
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    std::memcpy(&four->sin_addr, bytes.data() + 12, 4);
    return sizeof(*four);
  }
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  std::memcpy(&six->sin6_addr, bytes.data(), 16);
  return sizeof(*six);
}

Result<AddressRange> AddressRange::Parse(std::string_view text) {
  const auto fault = [text] { return Error::Invalid(Quoted(text) + " is no range of addresses, like 10.1.0.0/16"); };
  const size_t slash = text.find('/');
  const std::optional<Address> prefix = Address::Parse(text.substr(0, slash));
  if (!prefix) return fault();
  const bool four = text.substr(0, slash).find(':') == std::string_view::npos;
  const int most = four ? 32 : 128;
  int64_t bits = most;
  if (slash != std::string_view::npos) {
    const Result<int64_t> parsed = ParseCount(text.substr(slash + 1));
    if (!parsed || *parsed > most) return fault();
    bits = *parsed;
  }
  AddressRange range;
  range.prefix = *prefix;
  range.bits = static_cast<int>(bits) + 128 - most;
  return range;
}

bool AddressRange::Holds(const Address& address) const {
  const int whole = bits / 8;
  if (!std::equal(prefix.bytes.begin(), prefix.bytes.begin() + whole, address.bytes.begin())) return false;
  const int rest = bits % 8;
  if (rest == 0) return true;
  const int mask = 0xff << (8 - rest);
  return ((prefix.bytes[static_cast<size_t>(whole)] ^ address.bytes[static_cast<size_t>(whole)]) & mask) == 0;
}

const char* ClassName(AddressClass address_class) {
  constexpr const char* kNames[kAddressClassCount] = {"public", "unspecified", "loopback",  "private",   "link_local",
                                                      "shared", "metadata",    "multicast", "benchmark", "reserved"};
  return kNames[static_cast<size_t>(address_class)];
}

AddressClass Classify(const Address& address) {
  if (address.is_ipv4()) return ClassifyIpv4(address.ipv4());
  static const std::vector<ParsedRange> ranges = ParseAll(kIpv6Ranges);
  const AddressClass own = FindClass(ranges, address);
  const std::optional<uint32_t> inner = Embedded(address);
  if (!inner || own == AddressClass::kMetadata) return own;
  const AddressClass carried = ClassifyIpv4(*inner);
  return carried == AddressClass::kPublic ? own : carried;
}

Result<AddressRules> AddressRules::Make(const std::vector<std::string>& granted) {
  AddressRules rules;
  for (const std::string& text : granted) {
    CAISSON_TRY(const AddressRange range, AddressRange::Parse(text));
    rules.granted_.push_back(range);
  }
  return rules;
}

bool AddressRules::Grants(const Address& address) const {
  return std::any_of(granted_.begin(), granted_.end(), [&](const AddressRange& range) { return range.Holds(address); });
}

bool AddressRules::Allows(const Address& address) const {
  const AddressClass found = Classify(address);
  if (found == AddressClass::kMetadata) return false;
  return found == AddressClass::kPublic || Grants(address);
}

bool AddressRules::Allows(const sockaddr* address) const {
  const std::optional<Address> parsed = Address::FromSockaddr(address);
  return parsed && Allows(*parsed);
}

}  // namespace caisson::network
