#include "egress/relay.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "egress/connection.h"

namespace caisson::egress {

namespace {
constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr int64_t kRefillNanos = 20'000'000;
}  // namespace

Destination Destination::HostPort(uint16_t port) {
  const network::Address loopback = network::Address::FromIpv4(0x7f000001);
  return {
      {"localhost", loopback}, port, network::Protocol::kTcp, "host_port " + std::to_string(port), Way::kHostLoopback};
}

Destination Destination::Inside(uint16_t outside_port, uint16_t inside_port) {
  const network::Address loopback = network::Address::FromIpv4(0x7f000001);
  return {{"localhost", loopback},
          inside_port,
          network::Protocol::kTcp,
          "forward " + std::to_string(outside_port),
          Way::kInside};
}

class Relay::Listener : public Waiter {
 public:
  Listener(Relay& relay, UniqueFd fd, std::optional<Destination> destination)
      : relay_(relay), fd_(std::move(fd)), destination_(std::move(destination)) {
    source_ = {this, 0};
    ::fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
    relay_.loop_.Watch(fd_.get(), EPOLLIN, &source_);
  }

  void Close() { fd_.Reset(); }

  // Accepts a few at a time, so that many clients of one listener do not delay the others.
  void Ready(unsigned, uint32_t) override { AcceptSome(16); }

  void AcceptSome(int most) {
    for (int i = 0; i < most; ++i) {
      UniqueFd client(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return;
      }
      relay_.Accept(std::move(client), destination_);
    }
  }

 private:
  Relay& relay_;
  UniqueFd fd_;
  std::optional<Destination> destination_;
  Source source_;
};

Relay::Relay(Loop& loop, const control::Settings& settings, const network::RuleSet& rules, Names& names, Dialer& dialer,
             EventLog& events, const Credentials& credentials, const Tls* tls)
    : loop_(loop),
      settings_(settings),
      rules_(rules),
      names_(names),
      dialer_(dialer),
      events_(events),
      credentials_(credentials),
      tls_(tls),
      questions_(loop, events,
                 [this](uint32_t id, bool allowed) {
                   if (Connection* connection = Find(id)) connection->TakeVerdict(allowed);
                 }),
      buffer_(kBufferBytes),
      connection_tokens_(settings.connections_per_second),
      connection_refill_(MonotonicNanos()) {}

Relay::~Relay() = default;

void Relay::Listen(UniqueFd listener, std::optional<Destination> destination) {
  listeners_.push_back(std::make_unique<Listener>(*this, std::move(listener), std::move(destination)));
}

void Relay::Forward(UniqueFd listener, uint16_t outside_port, uint16_t inside_port) {
  EndForward(outside_port);
  forwards_[outside_port] =
      std::make_unique<Listener>(*this, std::move(listener), Destination::Inside(outside_port, inside_port));
}

void Relay::EndForward(uint16_t outside_port) {
  const auto found = forwards_.find(outside_port);
  if (found == forwards_.end()) return;
  found->second->Close();
  loop_.Retire(std::move(found->second));
  forwards_.erase(found);
}

void Relay::TakeInsideSocket(const control::InsideSocket& message, std::vector<UniqueFd> fds) {
  Connection* connection = Find(message.id);
  if (connection == nullptr) return;  // the client has left
  connection->TakeInsideSocket(message.error == 0 && fds.size() == 1 ? std::move(fds[0]) : UniqueFd());
}

bool Relay::TakeConnectionToken() {
  const int64_t now = MonotonicNanos();
  const double rate = settings_.connections_per_second;
  connection_tokens_ = std::min(rate, connection_tokens_ + rate * static_cast<double>(now - connection_refill_) / 1e9);
  connection_refill_ = now;
  if (connection_tokens_ < 1) return false;
  connection_tokens_ -= 1;
  return true;
}

void Relay::Accept(UniqueFd client, const std::optional<Destination>& destination) {
  const char* reason = connections_.size() >= settings_.max_connections                  ? "connection_limit"
                       : settings_.max_bytes != 0 && bytes_total_ >= settings_.max_bytes ? "byte_limit"
                       : !TakeConnectionToken()                                          ? "connection_rate"
                                                                                         : nullptr;
  const uint32_t id = next_id_++;
  auto connection = std::make_unique<Connection>(*this, id, std::move(client), destination);
  Connection* added = connection.get();
  connections_[id] = std::move(connection);
  if (reason != nullptr) {
    added->Close(reason);
  } else {
    added->Begin();
  }
}

Connection* Relay::Find(uint32_t id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.get();
}

void Relay::Remove(uint32_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  loop_.Retire(std::move(found->second));
  connections_.erase(found);
}

void Relay::AcceptWaiting() {
  constexpr int kMostWaiting = 4096;  // more than the backlog of a listener
  for (const std::unique_ptr<Listener>& listener : listeners_) listener->AcceptSome(kMostWaiting);
  // What waits at a forward came from outside, and is no attempt of the workload.
}

void Relay::CloseConnections(const char* reason) {
  while (!connections_.empty()) connections_.begin()->second->Close(reason);
}

void Relay::CloseAll(const char* reason) {
  CloseConnections(reason);
  listeners_.clear();
  forwards_.clear();
}

void Relay::RefillBytes() {
  const int64_t now = MonotonicNanos();
  const auto rate = static_cast<int64_t>(settings_.bytes_per_second);
  const int64_t burst = std::max<int64_t>(rate / 10, 1024);
  const int64_t passed = std::min<int64_t>(now - byte_refill_, 1'000'000'000);
  byte_tokens_ = std::min(
      burst, byte_tokens_ + static_cast<int64_t>(static_cast<double>(passed) * static_cast<double>(rate) / 1e9));
  byte_refill_ = now;
}

size_t Relay::TakeBytes(uint32_t id, size_t wanted) {
  if (settings_.bytes_per_second == 0) return wanted;
  if (byte_tokens_ <= 0 || byte_refill_ == 0) RefillBytes();
  if (byte_tokens_ <= 0) {
    throttled_.push_back(id);
    if (loop_.deadline(*this) == 0) loop_.SetDeadline(*this, MonotonicNanos() + kRefillNanos);
    return 0;
  }
  const size_t taken = std::min(wanted, static_cast<size_t>(byte_tokens_));
  byte_tokens_ -= static_cast<int64_t>(taken);
  return taken;
}

void Relay::Ready(unsigned, uint32_t) {}

void Relay::Expired() {
  RefillBytes();
  std::vector<uint32_t> due;
  due.swap(throttled_);
  for (const uint32_t id : due)
    if (Connection* connection = Find(id)) loop_.Queue(*connection);
}

}  // namespace caisson::egress
