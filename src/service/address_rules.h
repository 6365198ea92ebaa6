// Which addresses a callback may go to. The URL comes from whoever submits a job, so by default only addresses of the
// public internet will do: no loopback, private, link-local (and with it the clouds' metadata services), shared,
// multicast, documentation or otherwise reserved ones, nor IPv6 forms that stand for any of them.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace caisson::service {

class AddressRules {
 public:
  // `allowed` are ranges ("10.1.0.0/16", "::1", "192.0.2.7") that will do although they are not public.
  static Result<AddressRules> Make(const std::vector<std::string>& allowed);

  bool Allows(const sockaddr* address) const;

 private:
  struct Range {
    std::array<uint8_t, 16> prefix{};  // IPv4 as ::ffff:a.b.c.d
    int bits = 0;
    bool Holds(const std::array<uint8_t, 16>& address) const;
  };
  static Result<Range> Parse(const std::string& text);

  std::vector<Range> allowed_;
};

}  // namespace caisson::service
