// Answers the sandbox's DNS questions over UDP and TCP. An allowed name gets an address of the pool, and each of its
// ports has a listener before the answer is sent. The server forwards nothing.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "egress/dns.h"
#include "egress/event_log.h"
#include "egress/loop.h"
#include "egress/names.h"
#include "egress/relay.h"

namespace caisson::egress {

class DnsServer : public Waiter {
 public:
  DnsServer(Loop& loop, const network::RuleSet& rules, Names& names, Relay& relay, EventLog& events);
  ~DnsServer() override;

  void Serve(UniqueFd udp, UniqueFd tcp);
  // Requests the listeners of rules that allow an address; no DNS question comes before a connection to these.
  void BindAddresses();
  // Handles the owner's answer to Bind.
  void TakeListener(const control::Listener& message, std::vector<UniqueFd> fds);

  // An allow rule was added: names that have listeners get those of further ports.
  void RulesChanged();

  // Takes every question that has arrived. Called when all sending processes are gone.
  void Drain();

  void Ready(unsigned tag, uint32_t events) override;

 private:
  class TcpClient;
  static constexpr size_t kMaxHeld = 256;
  static constexpr size_t kMaxTcpClients = 16;
  static constexpr size_t kMaxUnanswered = 32;

  // Where to send an answer.
  struct Asker {
    uint32_t tcp_client = 0;  // 0: by UDP to `peer`
    sockaddr_storage peer{};
    socklen_t peer_size = 0;
  };
  // A question that waits for the listeners of its name.
  struct Held {
    Asker asker;
    std::vector<uint8_t> packet;
    DnsQuestion question;
  };
  struct Listeners {
    const Names::Name* name = nullptr;  // nullptr: the listeners belong to an address
    size_t outstanding = 0;
    size_t standing = 0;
    std::vector<Held> held;
  };
  struct Binding {
    std::string key;
    Destination destination;
  };

  // Returns false when no datagram was waiting.
  bool TakeDatagram();
  bool AcceptClient();
  void Take(std::span<const uint8_t> packet, const Asker& asker);
  void TakeQuestion(std::span<const uint8_t> packet, const DnsQuestion& question, const Asker& asker);
  // Returns true when the name concerns the sandbox itself and was answered.
  bool AnswerLocal(std::span<const uint8_t> packet, const DnsQuestion& question, const std::string& name,
                   const Asker& asker);
  void AnswerName(std::span<const uint8_t> packet, const DnsQuestion& question, const Listeners& listeners,
                  const Asker& asker);
  void Deny(const std::string& name, const network::Decision& decision);
  void Bind(const std::string& key, uint32_t address, const Destination& destination);
  void SendBinds();
  void Send(const std::vector<uint8_t>& answer, const Asker& asker);

  Loop& loop_;
  const network::RuleSet& rules_;
  Names& names_;
  Relay& relay_;
  EventLog& events_;
  UniqueFd udp_, tcp_;
  Source sources_[2];
  uint32_t next_bind_ = 1;
  uint32_t next_client_ = 1;
  size_t held_count_ = 0;
  std::map<uint32_t, Binding> bindings_;
  std::deque<std::string> unsent_binds_;
  size_t unanswered_binds_ = 0;
  std::map<std::string, Listeners> listeners_;  // key: a name, or address:port
  std::map<uint32_t, std::unique_ptr<TcpClient>> clients_;
};

}  // namespace caisson::egress
