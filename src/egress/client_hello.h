// Reads the server name from the first bytes of a TLS connection. The client sends these bytes in clear text, and they
// are hostile.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace caisson::egress {

// The limit for everything a client sends up to the end of its ClientHello, record headers included. Post-quantum key
// shares make it about 2 KiB; no known client comes near the limit.
inline constexpr size_t kMaxClientHelloBytes = 16384;

struct ClientHello {
  enum class State : uint8_t {
    kMore,  // the bytes so far are the beginning of a ClientHello
    kWhole,
    kNotTls,   // another protocol, or malformed
    kNoName,   // the ClientHello has no server name
    kBadName,  // two names, or an invalid one
    kOversized,
  };
  State state = State::kMore;
  std::string name;  // in lower case; set when kWhole
};

// A ClientHello may be spread over any number of records. `bytes` holds all bytes since the connection began.
ClientHello ParseClientHello(std::span<const uint8_t> bytes);

}  // namespace caisson::egress
