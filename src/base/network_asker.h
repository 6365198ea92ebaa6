// NetworkAsker: asks a person whether a sandbox may reach a destination that no rule mentions. The supervisor hands
// questions over and takes answers when the descriptor is readable; it never waits. A terminal implements it, and a
// session can.
//
// Deny rules and addresses that are not public are never asked about. Without an asker every such destination is
// denied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace caisson {

struct NetworkQuestion {
  uint32_t id = 0;
  std::string name;  // as the workload wrote it, normalized; it chose these bytes
  uint16_t port = 0;
  std::string protocol;  // "tls", "http"
};

struct NetworkAnswer {
  // kOnce: one connection; kSession: as long as the sandbox lives; kDenyOnce: the connections that wait now, so that
  // the next one is asked about again.
  enum class Scope : uint8_t { kDeny, kOnce, kSession, kDenyOnce };
  uint32_t id = 0;
  Scope scope = Scope::kDeny;
};

class NetworkAsker {
 public:
  virtual ~NetworkAsker() = default;
  virtual void Ask(const NetworkQuestion& question) = 0;
  // Readable when Take may have an answer.
  virtual int fd() const = 0;
  virtual std::optional<NetworkAnswer> Take() = 0;
  // The command has ended: questions that are still open need no answer.
  virtual void Withdraw() = 0;
};

}  // namespace caisson
