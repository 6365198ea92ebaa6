// Parses the first bytes on the optional proxy listener: HTTP CONNECT, or SOCKS5 with names ("SOCKS5h"). Only on this
// listener does the client name its destination; the same rules decide as everywhere else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "network/rule.h"

namespace caisson::egress {

inline constexpr size_t kMaxProxyHead = 8192;

struct ProxyStep {
  enum class State : uint8_t {
    kMore,         // incomplete
    kReply,        // send `reply`, drop `consumed` bytes and continue to parse
    kDestination,  // the client asks for `destination`; drop `consumed` bytes
    kRefused,      // send `reply` and close
  };
  State state = State::kMore;
  size_t consumed = 0;
  std::string reply;
  network::HostPort destination;
  const char* reason = "";  // for the record
};

class ProxyRequest {
 public:
  // `bytes` follow the bytes that were consumed before.
  ProxyStep Parse(std::string_view bytes);

  // The answer to send when the rules allow the destination.
  std::string Granted() const;
  std::string Denied(std::string_view reason) const;

 private:
  ProxyStep ParseConnect(std::string_view bytes);
  ProxyStep ParseSocksGreeting(std::string_view bytes);
  ProxyStep ParseSocksRequest(std::string_view bytes) const;

  bool socks_ = false;
  bool greeted_ = false;
};

}  // namespace caisson::egress
