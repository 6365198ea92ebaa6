// Accepts connections from the sandbox and leads each to the one destination that its listener stands for.
//
// The relay reads bytes while they stay in the kernel's socket buffer (MSG_PEEK) and drops them from it (MSG_TRUNC)
// after writing them to the other side. A connection therefore owns no buffer: a thousand connections that never read
// cost only their sockets, and all connections share one buffer of 256 KiB.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egress/credentials.h"
#include "egress/dialer.h"
#include "egress/event_log.h"
#include "egress/http_gate.h"
#include "egress/loop.h"
#include "egress/names.h"
#include "egress/proxy_request.h"
#include "egress/questions.h"
#include "egress/tls.h"

namespace caisson::egress {

struct Destination {
  // How it is reached.
  enum class Way : uint8_t {
    kOutside,       // by its name or address, which are judged
    kHostLoopback,  // a port of the host's loopback, which policy grants by its number
    kInside,        // a port of the sandbox's own loopback, for a client outside
  };
  network::Host host;
  uint16_t port = 0;
  network::Protocol protocol = network::Protocol::kTls;
  std::string rule;
  Way way = Way::kOutside;
  bool asked = false;  // no rule allows it: a person decides when there is a connection

  static Destination HostPort(uint16_t port);
  static Destination Inside(uint16_t outside_port, uint16_t inside_port);
};

class Connection;

class Relay : public Waiter {
 public:
  // `tls` may be nullptr; then `credentials` are empty.
  Relay(Loop& loop, const control::Settings& settings, const network::RuleSet& rules, Names& names, Dialer& dialer,
        EventLog& events, const Credentials& credentials, const Tls* tls);
  ~Relay() override;

  // Accepts connections for one destination, or as a proxy.
  void Listen(UniqueFd listener, std::optional<Destination> destination);
  // Accepts connections at the host's loopback and leads them inside, until EndForward.
  void Forward(UniqueFd listener, uint16_t outside_port, uint16_t inside_port);
  void EndForward(uint16_t outside_port);
  // Handles the owner's answer to Need.
  void TakeInsideSocket(const control::InsideSocket& message, std::vector<UniqueFd> fds);
  // Accepts every waiting connection. Called when no process is left that could open another.
  void AcceptWaiting();
#ifdef CAISSON_MUTATIONS
  void ResolveAhead(const network::Host& host) {
    dialer_.Resolve(host, 443, [](const Resolved&) {});
  }
#endif
  Questions& questions() { return questions_; }
  bool has_connections() const { return !connections_.empty(); }
  void CloseConnections(const char* reason);
  void CloseAll(const char* reason);

  void Ready(unsigned tag, uint32_t events) override;  // never called: the relay watches no descriptor
  void Expired() override;

 private:
  friend class Connection;
  class Listener;

  void Accept(UniqueFd client, const std::optional<Destination>& destination);
  void Remove(uint32_t id);
  Connection* Find(uint32_t id);
  bool TakeConnectionToken();
  // Returns how many bytes may be relayed now; when that is 0, the relay continues the connection later.
  size_t TakeBytes(uint32_t id, size_t wanted);
  void GiveBackBytes(size_t unused) { byte_tokens_ += static_cast<int64_t>(unused); }
  void RefillBytes();

  Loop& loop_;
  const control::Settings& settings_;
  const network::RuleSet& rules_;
  Names& names_;
  Dialer& dialer_;
  EventLog& events_;
  const Credentials& credentials_;
  const Tls* tls_;
  Questions questions_;
  std::vector<char> buffer_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::map<uint16_t, std::unique_ptr<Listener>> forwards_;  // by the port outside
  std::map<uint32_t, std::unique_ptr<Connection>> connections_;
  uint32_t next_id_ = 1;
  double connection_tokens_ = 0;
  int64_t connection_refill_ = 0;
  int64_t byte_tokens_ = 0;
  int64_t byte_refill_ = 0;
  uint64_t bytes_total_ = 0;
  std::vector<uint32_t> throttled_;
};

}  // namespace caisson::egress
