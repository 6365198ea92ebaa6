#include "egress/dns_server.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/mutation.h"
#include "network/name.h"

namespace caisson::egress {

namespace {
constexpr int64_t kTcpIdleNanos = 10'000'000'000;
enum Tag : unsigned { kUdp = 0, kTcp = 1 };
}  // namespace

// A TCP connection that asks questions: two bytes with the length precede each question.
class DnsServer::TcpClient : public Waiter {
 public:
  TcpClient(DnsServer& server, uint32_t id, UniqueFd fd) : server_(server), id_(id), fd_(std::move(fd)) {
    source_ = {this, 0};
    server_.loop_.Watch(fd_.get(), EPOLLIN | EPOLLRDHUP, &source_);
    server_.loop_.SetDeadline(*this, MonotonicNanos() + kTcpIdleNanos);
  }

  void Ready(unsigned, uint32_t) override { ReadOnce(); }

  // Returns false when there was nothing to read.
  bool ReadOnce() {
    uint8_t part[2 + kMaxQueryBytes];
    const ssize_t size = ::recv(fd_.get(), part, sizeof(part), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (size <= 0) return Close(), false;
    bytes_.insert(bytes_.end(), part, part + size);
    size_t at = 0;
    while (bytes_.size() - at >= 2) {
      const size_t length = static_cast<size_t>(bytes_[at]) << 8 | bytes_[at + 1];
      if (length > kMaxQueryBytes) return Close(), false;
      if (bytes_.size() - at < 2 + length) break;
      Asker asker;
      asker.tcp_client = id_;
      server_.Take({bytes_.data() + at + 2, length}, asker);
      if (closed_) return false;
      at += 2 + length;
    }
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }

  void Expired() override { Close(); }

  // A client that does not read its answers loses its connection.
  void Send(const std::vector<uint8_t>& answer) {
    std::vector<uint8_t> framed = {static_cast<uint8_t>(answer.size() >> 8), static_cast<uint8_t>(answer.size())};
    framed.insert(framed.end(), answer.begin(), answer.end());
    if (::send(fd_.get(), framed.data(), framed.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(framed.size()))
      return Close();
    server_.loop_.SetDeadline(*this, MonotonicNanos() + kTcpIdleNanos);
  }

 private:
  void Close() {
    if (closed_) return;
    closed_ = true;
    fd_.Reset();
    const auto found = server_.clients_.find(id_);
    server_.loop_.Retire(std::move(found->second));
    server_.clients_.erase(found);
  }

  DnsServer& server_;
  uint32_t id_;
  UniqueFd fd_;
  Source source_;
  bool closed_ = false;
  std::vector<uint8_t> bytes_;
};

DnsServer::DnsServer(Loop& loop, const network::RuleSet& rules, Names& names, Relay& relay, EventLog& events)
    : loop_(loop), rules_(rules), names_(names), relay_(relay), events_(events) {}

DnsServer::~DnsServer() = default;

void DnsServer::Serve(UniqueFd udp, UniqueFd tcp) {
  udp_ = std::move(udp);
  tcp_ = std::move(tcp);
  ::fcntl(tcp_.get(), F_SETFL, O_NONBLOCK);
  sources_[kUdp] = {this, kUdp};
  sources_[kTcp] = {this, kTcp};
  loop_.Watch(udp_.get(), EPOLLIN, &sources_[kUdp]);
  loop_.Watch(tcp_.get(), EPOLLIN, &sources_[kTcp]);
}

void DnsServer::BindAddresses() {
  for (const network::Rule& rule : rules_.allow()) {
    if (rule.match != network::Rule::Match::kAddress || !rule.host.address->is_ipv4()) continue;
    const network::Decision decision = rules_.Decide(rule.host, rule.port);
    const std::string key = rule.host.name + ":" + std::to_string(rule.port);
    if (!decision.allowed || listeners_.count(key) != 0) continue;
    Bind(key, rule.host.address->ipv4(), {rule.host, rule.port, decision.allowed_port.protocol, decision.rule});
  }
}

void DnsServer::Ready(unsigned tag, uint32_t) {
  if (tag == kTcp) {
    AcceptClient();
    return;
  }
  for (int i = 0; i < 64 && TakeDatagram(); ++i) {  // then other waiters have their turn
  }
}

bool DnsServer::AcceptClient() {
  UniqueFd client(::accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client) return false;
  if (clients_.size() >= kMaxTcpClients) return true;  // closed: the client asks again
  const uint32_t id = next_client_++;
  clients_[id] = std::make_unique<TcpClient>(*this, id, std::move(client));
  return true;
}

bool DnsServer::TakeDatagram() {
  uint8_t packet[kMaxQueryBytes + 1];
  Asker asker;
  asker.peer_size = sizeof(asker.peer);
  const ssize_t size = ::recvfrom(udp_.get(), packet, sizeof(packet), MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&asker.peer), &asker.peer_size);
  if (size < 0) return false;
  if (size > static_cast<ssize_t>(kMaxQueryBytes)) {
    ++events_.totals().questions;
    ++events_.totals().questions_malformed;
    return true;
  }
  Take({packet, static_cast<size_t>(size)}, asker);
  return true;
}

void DnsServer::Drain() {
  // More than the queues can hold. No process is left that could send more.
  constexpr int kMost = 65536;
  for (int i = 0; i < kMost && TakeDatagram(); ++i) {
  }
  // Reads each accepted connection until it ends, so that the next connections have room.
  do {
    std::vector<uint32_t> ids;
    for (const auto& [id, client] : clients_) ids.push_back(id);
    for (const uint32_t id : ids) {
      for (int i = 0; i < kMost; ++i) {
        const auto client = clients_.find(id);
        if (client == clients_.end() || !client->second->ReadOnce()) break;
      }
    }
  } while (AcceptClient());
}

void DnsServer::Send(const std::vector<uint8_t>& answer, const Asker& asker) {
  if (asker.tcp_client == 0) {
    ::sendto(udp_.get(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&asker.peer), asker.peer_size);
    return;
  }
  if (const auto client = clients_.find(asker.tcp_client); client != clients_.end()) client->second->Send(answer);
}

void DnsServer::Take(std::span<const uint8_t> packet, const Asker& asker) {
  ++events_.totals().questions;
  DnsQuestion question;
  switch (ParseQuestion(packet, question)) {
    case PacketKind::kNothing:
      ++events_.totals().questions_malformed;
      return;
    case PacketKind::kMalformed:
      ++events_.totals().questions_malformed;
      return Send(MakeFormErr(packet), asker);
    case PacketKind::kQuestion:
      return TakeQuestion(packet, question, asker);
  }
}

void DnsServer::Deny(const std::string& name, const network::Decision& decision) {
  ++events_.totals().questions_denied;
  control::Event event;
  event.name = name;
  event.rule = decision.rule;
  event.reason = decision.reason;
  events_.Denied(event);
}

bool DnsServer::AnswerLocal(std::span<const uint8_t> packet, const DnsQuestion& question, const std::string& name,
                            const Asker& asker) {
  DnsRecord record;
  if (network::IsAtOrBelow(name, "localhost")) {
    if (question.type == kTypeA) record = AddressRecord{0x7f000001};
    if (question.type == kTypeAaaa) record = Ipv6Record{*network::Address::Parse("::1")};
  } else {
    const std::optional<network::Address> address = ParseReverseName(name);
    if (!address) return false;
    if (network::Classify(*address) == network::AddressClass::kLoopback) {
      record = NameRecord{"localhost"};
    } else {
      const Names::Name* found = address->is_ipv4() ? names_.Find(address->ipv4()) : nullptr;
      if (found == nullptr) return false;
      record = NameRecord{found->host.name};
    }
    if (question.type != kTypePtr) record = {};
  }
  Send(MakeAnswer(packet, question, Rcode::kNoError, record), asker);
  return true;
}

void DnsServer::TakeQuestion(std::span<const uint8_t> packet, const DnsQuestion& question, const Asker& asker) {
  if (question.opcode != 0) return Send(MakeAnswer(packet, question, Rcode::kNotImp), asker);
  network::Decision decision;
  Result<network::Host> host = network::Host::Parse(question.name);
  const bool is_name = host && !host->address && question.question_class == kClassIn;
  if (is_name && AnswerLocal(packet, question, host->name, asker)) return;
  const Names::Name* name = is_name ? names_.Allocate(*host, decision) : nullptr;
  // A person may be asked about a name that no rule mentions. A name without a dot, or of an address, is a search of
  // the resolver's own.
  const bool may_ask = is_name && name == nullptr && relay_.questions().attended() &&
                       std::string_view(decision.reason) == "not_listed" && host->name.find('.') != std::string::npos &&
                       !network::IsAtOrBelow(host->name, "arpa");
  if (may_ask) name = names_.AllocateAsked(*host, decision);
#ifdef CAISSON_MUTATIONS
  if (is_name && name == nullptr && CAISSON_LEFT_OUT("answered_here")) relay_.ResolveAhead(*host);
  if (name != nullptr && CAISSON_LEFT_OUT("late_resolution")) relay_.ResolveAhead(*host);
#endif
  if (name == nullptr) {
    Deny(host ? host->name : question.name, decision);
    return Send(MakeAnswer(packet, question, Rcode::kNxDomain), asker);
  }
  const auto known = listeners_.find(host->name);
  if (known != listeners_.end() && known->second.outstanding == 0)
    return AnswerName(packet, question, known->second, asker);
  if (known == listeners_.end()) {
    control::Event event;
    event.name = host->name;
    event.allowed = 1;
    event.rule = name->asked ? "ask" : decision.rule;
    event.reason = "allowed";
    events_.Allowed(event);
    listeners_[host->name].name = name;
    for (const network::AllowedPort& allowed_port : name->allowed_ports) {
      Destination destination{name->host, allowed_port.port, allowed_port.protocol,
                              name->asked ? "ask" : rules_.allow()[allowed_port.rule].label};
      destination.asked = name->asked;
      Bind(host->name, name->address, destination);
    }
  }
  if (held_count_ >= kMaxHeld) return;  // dropped: the client asks again
  ++held_count_;
  listeners_[host->name].held.push_back({asker, {packet.begin(), packet.end()}, question});
}

void DnsServer::RulesChanged() {
  for (const auto& [key, listeners] : listeners_) {
    if (listeners.name == nullptr) continue;
    for (const network::AllowedPort& port : names_.AddPorts(key))
      Bind(key, listeners.name->address,
           {listeners.name->host, port.port, port.protocol, rules_.allow()[port.rule].label});
  }
}

void DnsServer::Bind(const std::string& key, uint32_t address, const Destination& destination) {
  control::Bind bind;
  bind.id = next_bind_++;
  bind.address = address;
  bind.port = destination.port;
  bind.name = destination.host.name;
  bindings_[bind.id] = {key, destination};
  ++listeners_[key].outstanding;
  unsent_binds_.push_back(control::Pack(bind));
  SendBinds();
}

// The owner answers each Bind before it reads on. With more of them on the way than a socket holds, both processes
// could wait for the other to read.
void DnsServer::SendBinds() {
  while (!unsent_binds_.empty() && unanswered_binds_ < kMaxUnanswered) {
    ++unanswered_binds_;
    events_.Send(std::move(unsent_binds_.front()));
    unsent_binds_.pop_front();
  }
}

void DnsServer::TakeListener(const control::Listener& message, std::vector<UniqueFd> fds) {
  const auto found = bindings_.find(message.id);
  if (found == bindings_.end()) return;
  const Binding binding = std::move(found->second);
  bindings_.erase(found);
  --unanswered_binds_;
  SendBinds();
  Listeners& listeners = listeners_[binding.key];
  if (message.error == 0 && fds.size() == 1) {
    relay_.Listen(std::move(fds[0]), binding.destination);
    ++listeners.standing;
  } else {
    // The workload may already listen at the address; that harms only the workload.
    control::Event event;
    event.what = control::Event::kRefused;
    event.name = binding.destination.host.name;
    event.port = binding.destination.port;
    event.protocol = network::ProtocolName(binding.destination.protocol);
    event.rule = binding.destination.rule;
    event.reason = message.error == EADDRINUSE ? "listener_taken" : "listener_failed";
    events_.Denied(event);
  }
  if (--listeners.outstanding > 0) return;
  std::vector<Held> held;
  held.swap(listeners.held);
  held_count_ -= held.size();
  for (const Held& one : held) AnswerName(one.packet, one.question, listeners, one.asker);
}

void DnsServer::AnswerName(std::span<const uint8_t> packet, const DnsQuestion& question, const Listeners& listeners,
                           const Asker& asker) {
  // Without a listener the address would lead to any server that the workload started there.
  if (listeners.standing == 0) return Send(MakeAnswer(packet, question, Rcode::kServFail), asker);
  DnsRecord record;
  if (question.type == kTypeA) record = AddressRecord{listeners.name->address};
  Send(MakeAnswer(packet, question, Rcode::kNoError, record), asker);
}

}  // namespace caisson::egress
