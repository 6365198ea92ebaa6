#include "service/address_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "base/words.h"

namespace caisson::service {
namespace {

// Everything the registries of special addresses (RFC 6890 and its successors) keep from the public internet.
constexpr const char* kReserved[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
};
// The only part of IPv6 that is given out, and within it what stands for IPv4 addresses or is reserved.
constexpr const char* kGlobalUnicast = "2000::/3";
constexpr const char* kReservedGlobal[] = {"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"};

std::array<uint8_t, 16> Mapped(const in_addr& address) {
  std::array<uint8_t, 16> bytes{};
  bytes[10] = bytes[11] = 0xff;
  std::memcpy(bytes.data() + 12, &address, 4);
  return bytes;
}

}  // namespace

bool AddressRules::Range::Holds(const std::array<uint8_t, 16>& address) const {
  const int whole = bits / 8;
  if (!std::equal(prefix.begin(), prefix.begin() + whole, address.begin())) return false;
  const int rest = bits % 8;
  if (rest == 0) return true;
  const int mask = 0xff << (8 - rest);
  return ((prefix[static_cast<size_t>(whole)] ^ address[static_cast<size_t>(whole)]) & mask) == 0;
}

Result<AddressRules::Range> AddressRules::Parse(const std::string& text) {
  Range range;
  const size_t slash = text.find('/');
  const std::string host = text.substr(0, slash);
  in_addr four{};
  in6_addr six{};
  int most = 128;
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) {
    range.prefix = Mapped(four);
    most = 32;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) {
    std::memcpy(range.prefix.data(), &six, 16);
  } else {
    return Error::Invalid(Quoted(text) + " is no range of addresses, like 10.1.0.0/16");
  }
  int64_t bits = most;
  if (slash != std::string::npos) {
    const Result<int64_t> parsed = ParseCount(text.substr(slash + 1));
    if (!parsed || *parsed > most) return Error::Invalid(Quoted(text) + " is no range of addresses, like 10.1.0.0/16");
    bits = *parsed;
  }
  range.bits = static_cast<int>(bits) + (128 - most);
  return range;
}

Result<AddressRules> AddressRules::Make(const std::vector<std::string>& allowed) {
  AddressRules rules;
  for (const std::string& text : allowed) {
    CAISSON_TRY(const Range range, Parse(text));
    rules.allowed_.push_back(range);
  }
  return rules;
}

bool AddressRules::Allows(const sockaddr* address) const {
  std::array<uint8_t, 16> bytes{};
  bool four = false;
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof(in));
    bytes = Mapped(in.sin_addr);
    four = true;
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof(in));
    std::memcpy(bytes.data(), &in.sin6_addr, 16);
    four = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
  } else {
    return false;
  }
  const auto in = [&](const char* text) { return Parse(text)->Holds(bytes); };
  if (std::any_of(allowed_.begin(), allowed_.end(), [&](const Range& range) { return range.Holds(bytes); }))
    return true;
  if (four) return std::none_of(std::begin(kReserved), std::end(kReserved), in);
  return in(kGlobalUnicast) && std::none_of(std::begin(kReservedGlobal), std::end(kReservedGlobal), in);
}

}  // namespace caisson::service
