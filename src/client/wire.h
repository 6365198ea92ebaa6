// A connection to the service: unix socket, TCP, or TLS over it. Blocks; every wait has a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "client/endpoint.h"

namespace caisson::client {

class Wire {
 public:
  // Errors name the endpoint, the cause and, if no service listens, how to start one.
  static Result<std::unique_ptr<Wire>> Open(const Endpoint& endpoint, int64_t timeout_ms);
  virtual ~Wire() = default;

  virtual Status Send(std::string_view bytes, int64_t timeout_ms) = 0;
  // 0 at the end of the connection.
  virtual Result<size_t> Receive(char* into, size_t size, int64_t timeout_ms) = 0;
};

}  // namespace caisson::client
