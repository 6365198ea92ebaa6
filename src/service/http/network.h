// The event loop that serves all connections on one thread, with or without TLS. Asio and OpenSSL stay behind this
// header.
//
// All functions, except where it says "any thread", are called on the loop's own thread, and all callbacks come there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::service::http {

enum class IoEnd : uint8_t { kOk, kEof, kTimeout, kFailed };

// A connection's bytes. One read and one write at a time, each with its own time limit. The channel must stay alive
// until the callback runs: callbacks should hold its owner.
class Channel {
 public:
  using Done = std::function<void(IoEnd, size_t bytes)>;
  virtual ~Channel() = default;

  virtual void Handshake(int64_t timeout_ms, Done done) = 0;
  // Reads at least one byte, or reports the end or an error.
  virtual void Read(char* into, size_t size, int64_t timeout_ms, Done done) = 0;
  // Writes both buffers in order. The time limit covers all bytes: a peer that takes single bytes gains no time.
  virtual void Write(std::string_view first, std::string_view second, int64_t timeout_ms, Done done) = 0;
  // Shuts down sending. Data from the peer can still be read.
  virtual void EndSending(int64_t timeout_ms, Done done) = 0;
  virtual void Close() = 0;
};

// Fires once, unless it is destroyed before.
class Timer {
 public:
  virtual ~Timer() = default;
};

class Network {
 public:
  // Without certificate and key there is no TLS.
  static Result<std::unique_ptr<Network>> Make(const std::string& tls_certificate, const std::string& tls_key);
  virtual ~Network() = default;

  virtual void Run() = 0;                             // until Stop; the calling thread becomes the loop's thread
  virtual void Stop() = 0;                            // any thread
  virtual void Post(std::function<void()> call) = 0;  // any thread

  virtual std::unique_ptr<Timer> After(int64_t milliseconds, std::function<void()> call) = 0;
  // `accepted` gets every new connection of the listening socket, which must be non-blocking.
  virtual void Accept(UniqueFd listener, std::function<void(UniqueFd)> accepted) = 0;
  virtual void StopAccepting() = 0;
  virtual std::shared_ptr<Channel> Open(UniqueFd socket, bool tls) = 0;
};

}  // namespace caisson::service::http
