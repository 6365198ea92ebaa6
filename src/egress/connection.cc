#include "egress/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace caisson::egress {
namespace {

constexpr size_t kPumpBytes = size_t{1} << 20;  // limit for one connection before others have their turn
constexpr int64_t kLingerNanos = 2'000'000'000;
constexpr size_t kLingerBytes = size_t{4} << 20;
constexpr uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr int64_t kTryNanos = 5'000'000'000;  // for each address except the last

// When one side does not read, the kernel lets the buffers of a connection grow to several MiB of the host's memory: a
// workload could hold gigabytes of it with connections alone. With these limits a connection holds about 1.5 MiB at
// most; a single connection still reaches 80 Mbit/s at a round trip of 100 ms.
constexpr int kWindowBytes = 1 << 20;     // how much a server may send ahead
constexpr int kReceiveBytes = 256 << 10;  // how much the workload may send ahead
constexpr int kUnsentBytes = 256 << 10;   // how much may wait to be sent, besides bytes in flight

// The client left, or the owner ended the work: nothing was denied.
bool IsOwnWill(std::string_view reason) { return reason == "client_gone" || reason == "reset" || reason == "finished"; }

void SetOption(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof(value)); }

}  // namespace

int64_t Connection::After(uint32_t ms) { return MonotonicNanos() + int64_t{ms} * 1'000'000; }

Connection::Connection(Relay& relay, uint32_t id, UniqueFd client, std::optional<Destination> destination)
    : relay_(relay), id_(id), destination_(std::move(destination)), began_(MonotonicNanos()) {
  ends_[kClient].fd = std::move(client);
  for (const Side side : {kClient, kServer}) ends_[side].source = {this, side};
}

void Connection::Begin() {
  if (!destination_) {
    state_ = State::kProxy;
    by_proxy_ = true;
  } else if (destination_->protocol == network::Protocol::kTcp) {
    Dial();
  }
  if (destination_ && destination_->protocol == network::Protocol::kHttp) gate_ = MakeGate();
  if (state_ == State::kClosed) return;
  SetOption(ends_[kClient].fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(ends_[kClient].fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  SetOption(ends_[kClient].fd.get(), SOL_SOCKET, SO_RCVBUF, kReceiveBytes);
  if (state_ == State::kProxy || state_ == State::kFirstBytes)
    relay_.loop_.SetDeadline(*this, After(relay_.settings_.first_bytes_ms));
  // The first edge reports bytes that have already arrived.
  if (!relay_.loop_.Watch(ends_[kClient].fd.get(), kEvents, &ends_[kClient].source)) Close("descriptor_limit");
}

std::unique_ptr<HttpGate> Connection::MakeGate() const {
  const Credentials& credentials = relay_.credentials_;
  return std::make_unique<HttpGate>(destination_->host, destination_->port,
                                    [&credentials](std::string_view head) { return credentials.IsMentioned(head); });
}

void Connection::Ready(unsigned tag, uint32_t events) {
  if (state_ == State::kClosed) return;
  End& end = ends_[tag];
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) end.readable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP)) != 0) end.hung_up = true;
  if ((events & EPOLLOUT) != 0) end.writable = true;
  if (state_ == State::kAsking) {
    // A client that has closed looks like one that only sends nothing more. Both have left: an approval for one
    // connection must not be used up by a client that is gone. The question stays.
    if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0) Close("client_gone");
    return;
  }
  if (state_ == State::kDialling) {
    if (tag == kServer && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) return Connected();
    if (tag == kClient && (events & (EPOLLERR | EPOLLHUP)) != 0) return Close("client_gone");
    return;
  }
  if (state_ == State::kLingering && tag == kServer) return;
  // Bytes that a side sent before it was reset are still delivered if the other side accepts them; then reading returns
  // the error.
  if (terminated_) return PumpTerminated();
  const bool relays = state_ == State::kOpen || state_ == State::kRefusing;
  if ((events & EPOLLERR) != 0 && !(relays && ends_[1 - tag].writable)) return Reset("reset");
  Continue();
}

void Connection::Continue() {
  switch (state_) {
    case State::kProxy:
      return StepProxy();
    case State::kFirstBytes:
      return StepFirstBytes();
    case State::kOpen:
    case State::kRefusing:
      return Pump();
    case State::kLingering:
      return StepLingering();
    case State::kAsking:
    case State::kDialling:
    case State::kClosed:
      return;
  }
}

void Connection::Expired() {
  switch (state_) {
    case State::kProxy:
      return Refuse(false, "first_bytes_timeout", "");
    case State::kFirstBytes:
      return Refuse(false, "first_bytes_timeout", gate_ ? HttpRefusal(408, "first_bytes_timeout") : "");
    case State::kAsking:
      return;
    case State::kDialling:
      return ConnectNext(ETIMEDOUT);
    case State::kOpen:  // a later request head that does not end
      if (terminated_) {
        terminated_->Expire();
        return PumpTerminated();
      }
      if (second_hello_) return Refuse(false, "first_bytes_timeout", "");
      refusal_ = {0, 408, "first_bytes_timeout"};
      state_ = State::kRefusing;
      return FinishRefusing();
    case State::kRefusing:
    case State::kLingering:
      return Close(refusal_.reason);
    case State::kClosed:
      return;
  }
}

std::string_view Connection::PeekClient(bool& ended) {
  End& client = ends_[kClient];
  const ssize_t size = ::recv(client.fd.get(), relay_.buffer_.data(), relay_.buffer_.size(), MSG_PEEK | MSG_DONTWAIT);
  ended = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR) || (size > 0 && client.hung_up);
  return {relay_.buffer_.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

void Connection::Drop(End& end, size_t bytes) {
  while (bytes > 0) {
    const ssize_t dropped = ::recv(end.fd.get(), nullptr, bytes, MSG_TRUNC | MSG_DONTWAIT);
    if (dropped <= 0) return;
    bytes -= static_cast<size_t>(dropped);
  }
}

// Best effort: the socket's send buffer is empty at the only moments when egress itself sends to the client.
void Connection::Say(std::string_view bytes) {
  if (!bytes.empty()) (void)!::send(ends_[kClient].fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Connection::TakeVerdict(bool allowed) {
  if (state_ != State::kAsking) return;
  if (!allowed) return Refuse(false, "not_approved", gate_ ? HttpRefusal(403, "not_approved") : "");
  approved_ = true;
  Dial();
}

void Connection::Dial() {
  if (destination_->asked && !approved_) {
    // A rule that was added since its listener was bound allows it without a question.
    const network::Decision decision = relay_.rules_.Decide(destination_->host, destination_->port);
    approved_ = decision.allowed && decision.allowed_port.protocol == destination_->protocol;
    if (approved_) destination_->rule = decision.rule;
  }
  if (destination_->asked && !approved_) {
    state_ = State::kAsking;
    relay_.loop_.SetDeadline(*this, 0);  // the question has one of its own
    const auto state = relay_.questions_.Ask(destination_->host.name, destination_->port,
                                             network::ProtocolName(destination_->protocol), id_);
    if (state != Questions::State::kPending) return TakeVerdict(state == Questions::State::kAllowed);
    if (ends_[kClient].hung_up) Close("client_gone");
    return;
  }
  state_ = State::kDialling;
  relay_.loop_.SetDeadline(*this, After(relay_.settings_.connect_ms));
  if (destination_->way != Destination::Way::kOutside) {
    // SECURITY: no other address of a host port or a forward can be dialled, and these ports are numbers that the owner
    // sent before or beside hostile bytes, never a part of them. A server inside may listen at either loopback address.
    addresses_ = {*destination_->host.address};
    if (destination_->way == Destination::Way::kInside) addresses_.push_back(*network::Address::Parse("::1"));
    return ConnectNext(0);
  }
  Relay& relay = relay_;
  relay_.dialer_.Resolve(destination_->host, destination_->port, [&relay, id = id_](const Resolved& resolved) {
    Connection* connection = relay.Find(id);
    if (connection == nullptr || connection->state_ != State::kDialling) return;
    if (!resolved.reason.empty()) {
      connection->fault_address_ = resolved.address;
      connection->fault_rule_ = resolved.rule;
      // A name that has no address, or that no server knows, was not denied by any rule.
      const bool allowed = resolved.reason == "no_address" || resolved.reason == "resolver_failed";
      connection->Refuse(allowed, resolved.reason,
                         connection->gate_ ? HttpRefusal(allowed ? 502 : 403, resolved.reason) : "");
      return;
    }
    connection->addresses_ = resolved.addresses;
    connection->ConnectNext(0);
  });
}

void Connection::ConnectNext(int last_error) {
  End& server = ends_[kServer];
  while (next_address_ < addresses_.size()) {
    const network::Address& address = addresses_[next_address_++];
    if (destination_->way == Destination::Way::kInside) {
      server.fd.Reset();
      control::Need need;
      need.id = id_;
      need.ipv6 = address.is_ipv4() ? 0 : 1;
      return relay_.events_.Send(control::Pack(need));
    }
    server.fd.Reset(::socket(address.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (Connect(address)) return;
    last_error = errno;
  }
  server.fd.Reset();
  const char* reason = last_error == ECONNREFUSED ? "connect_refused"
                       : last_error == ETIMEDOUT  ? "connect_timeout"
                                                  : "unreachable";
  Refuse(true, reason, gate_ ? HttpRefusal(502, reason) : "");
}

bool Connection::Connect(const network::Address& address) {
  End& server = ends_[kServer];
  if (!server.fd) return false;
  address_ = address.Text();
  sockaddr_storage storage;
  const socklen_t size = address.ToSockaddr(destination_->port, storage);
  server.readable = server.writable = server.hung_up = false;
  SetOption(server.fd.get(), IPPROTO_TCP, TCP_WINDOW_CLAMP, kWindowBytes);
  SetOption(server.fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  if (::connect(server.fd.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 && errno != EINPROGRESS)
    return false;
  const bool last = next_address_ == addresses_.size();
  const int64_t limit = int64_t{relay_.settings_.connect_ms} * 1'000'000;
  relay_.loop_.SetDeadline(*this, MonotonicNanos() + (last ? limit : std::min(limit, kTryNanos)));
  return relay_.loop_.Watch(server.fd.get(), kEvents, &server.source);
}

void Connection::TakeInsideSocket(UniqueFd socket) {
  if (state_ != State::kDialling || !destination_ || destination_->way != Destination::Way::kInside ||
      next_address_ == 0 || ends_[kServer].fd)
    return;
  errno = EMFILE;
  ends_[kServer].fd = std::move(socket);
  if (!Connect(addresses_[next_address_ - 1])) ConnectNext(errno);
}

void Connection::Connected() {
  End& server = ends_[kServer];
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(server.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return ConnectNext(error);
  SetOption(server.fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(server.fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  relay_.loop_.SetDeadline(*this, 0);
  state_ = State::kOpen;
  reached_ = true;
  ++relay_.events_.totals().connections;
  relay_.events_.Allowed(MakeEvent(control::Event::kOpened, true, "allowed"));
  ends_[kClient].readable = ends_[kClient].writable = true;
  server.readable = server.writable = true;
  if (refusal_.status != 0) state_ = State::kRefusing;
  if (destination_->protocol == network::Protocol::kTls && destination_->way == Destination::Way::kOutside &&
      relay_.credentials_.Binds(destination_->host.name, destination_->port)) {
    terminated_ = std::make_unique<Terminated>(*relay_.tls_, relay_.credentials_, destination_->host,
                                               destination_->port, ends_[kClient].fd.get(), server.fd.get());
    relay_.loop_.SetDeadline(*this, After(relay_.settings_.connect_ms));
    second_hello_.reset();
  }
  Pump();
}

bool Connection::PumpOne(Side side, size_t& budget) {
  End& from = ends_[side];
  End& to = ends_[1 - side];
  while (from.readable && to.writable && !from.at_end && budget > 0) {
    const size_t room = relay_.TakeBytes(id_, std::min(budget, relay_.buffer_.size()));
    if (room == 0) return true;  // continues when the byte rate allows more
    const ssize_t size = ::recv(from.fd.get(), relay_.buffer_.data(), room, MSG_PEEK | MSG_DONTWAIT);
    if (size <= 0) relay_.GiveBackBytes(relay_.settings_.bytes_per_second != 0 ? room : 0);
    if (size < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Reset("reset"), false;
      from.readable = false;
      break;
    }
    if (size == 0) {
      from.at_end = true;
      if (side == kClient || state_ != State::kRefusing)
        ::shutdown(to.fd.get(), SHUT_WR);  // otherwise egress still sends its own answer
      break;
    }
    std::string_view bytes(relay_.buffer_.data(), static_cast<size_t>(size));
    const bool decides = (second_hello_ && second_hello_->awaits_answer()) || (gate_ && gate_->awaits_upgrade());
    if (side == kServer && decides && !ReadAnswer(bytes)) {
      from.readable = from.hung_up;
      if (!from.hung_up) {
        if (relay_.settings_.bytes_per_second != 0) relay_.GiveBackBytes(room);
        break;
      }
      if (gate_) gate_->AnswerUpgrade(false);
    }
    size_t allowed = bytes.size();
    if (side == kClient) allowed = std::min(JudgeBytes(bytes), bytes.size());
    if (state_ == State::kLingering || state_ == State::kClosed) return false;
    if (allowed == 0) {
      from.readable = false;  // until more bytes arrive, or the server has answered
      if (side == kClient && from.hung_up && state_ == State::kOpen) {
        from.at_end = true;  // the client closed in the middle of a head
        ::shutdown(to.fd.get(), SHUT_WR);
      }
      if (relay_.settings_.bytes_per_second != 0) relay_.GiveBackBytes(room);
      break;
    }
    const ssize_t sent = ::send(to.fd.get(), bytes.data(), allowed, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (relay_.settings_.bytes_per_second != 0)
      relay_.GiveBackBytes(room - static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Reset("reset"), false;
      to.writable = false;
      break;
    }
    const auto moved = static_cast<size_t>(sent);
    Drop(from, moved);
    if (side == kClient && (gate_ || second_hello_)) judged_ -= moved;
    (side == kClient ? bytes_out_ : bytes_in_) += moved;
    (side == kClient ? relay_.events_.totals().bytes_out : relay_.events_.totals().bytes_in) += moved;
    relay_.bytes_total_ += moved;
    budget -= std::min(budget, moved);
    if (relay_.settings_.max_bytes != 0 && relay_.bytes_total_ >= relay_.settings_.max_bytes)
      return CutAtByteLimit(), false;
  }
  return true;
}

// TLS is terminated: both sides are pumped by Terminated, and every edge of either socket leads here.
void Connection::PumpTerminated() {
  const size_t room = relay_.TakeBytes(id_, kPumpBytes);
  if (room == 0) return;
  const Terminated::Step step = terminated_->Pump(room);
  if (relay_.settings_.bytes_per_second != 0)
    relay_.GiveBackBytes(room - std::min(room, step.bytes_in + step.bytes_out));
  bytes_in_ += step.bytes_in;
  bytes_out_ += step.bytes_out;
  relay_.events_.totals().bytes_in += step.bytes_in;
  relay_.events_.totals().bytes_out += step.bytes_out;
  relay_.bytes_total_ += step.bytes_in + step.bytes_out;
  if (!step.used.empty()) {
    control::Event event = MakeEvent(control::Event::kOpened, true, "allowed");
    event.protocol = "credential";
    event.rule = step.used;
    relay_.events_.Allowed(event);
  }
  if (step.refusal != nullptr) {
    ++relay_.events_.totals().refused;
    relay_.events_.Denied(MakeEvent(control::Event::kRefused, step.refusal_is_ours, step.refusal));
  }
  if (step.over) return step.clean ? Close("closed") : Reset("reset");
  if (relay_.settings_.max_bytes != 0 && relay_.bytes_total_ >= relay_.settings_.max_bytes) return CutAtByteLimit();
  if (!step.waits_for_head) {
    relay_.loop_.SetDeadline(*this, 0);
  } else if (relay_.loop_.deadline(*this) == 0) {
    relay_.loop_.SetDeadline(*this, After(relay_.settings_.first_bytes_ms));
  }
  if (step.has_more) relay_.loop_.Queue(*this);
}

void Connection::Pump() {
  if (terminated_) return PumpTerminated();
  size_t budget = kPumpBytes;
  // Pumps the server first: an answer that it sent before it stopped reading must not be lost when sending to it fails.
  if (!PumpOne(kServer, budget) || !PumpOne(kClient, budget)) return;
  if (state_ == State::kRefusing) return FinishRefusing();
  if (ends_[kClient].at_end && ends_[kServer].at_end) return Close("closed");
  if (budget == 0) relay_.loop_.Queue(*this);
}

// Handles the refusal of a later request. The server sees the end of the good requests, answers them and closes; then
// the client gets egress's answer to the refused request. Sending it between two parts of the server's answers would
// forge the server's output.
void Connection::FinishRefusing() {
  if (judged_ > 0) return;
  End& server = ends_[kServer];
  if (!ends_[kClient].at_end) {
    ends_[kClient].at_end = true;
    ::shutdown(server.fd.get(), SHUT_WR);
    relay_.loop_.SetDeadline(*this, After(relay_.settings_.first_bytes_ms));
    control::Event event = MakeEvent(control::Event::kRefused, false, refusal_.reason);
    ++relay_.events_.totals().refused;
    relay_.events_.Denied(event);
  }
  if (server.at_end) Linger(HttpRefusal(refusal_.status, refusal_.reason));
}

void Connection::Linger(std::string_view last_words) {
  Say(last_words);
  ::shutdown(ends_[kClient].fd.get(), SHUT_WR);
  state_ = State::kLingering;
  relay_.loop_.SetDeadline(*this, MonotonicNanos() + kLingerNanos);
  StepLingering();
}

// Closing while bytes of the client are unread would reset the connection, and the client would lose the last answer.
void Connection::StepLingering() {
  for (;;) {
    const ssize_t size = ::recv(ends_[kClient].fd.get(), nullptr, kLingerBytes, MSG_TRUNC | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    lingered_ += static_cast<size_t>(std::max<ssize_t>(size, 0));
    if (size <= 0 || lingered_ >= kLingerBytes) return Close("closed");
  }
}

control::Event Connection::MakeEvent(uint8_t what, bool allowed, std::string_view reason) const {
  control::Event event;
  event.what = what;
  event.allowed = allowed ? 1 : 0;
  event.connection = id_;
  // Seen from the sandbox: the client of a forward is outside.
  const bool inward = destination_ && destination_->way == Destination::Way::kInside;
  event.bytes_in = inward ? bytes_out_ : bytes_in_;
  event.bytes_out = inward ? bytes_in_ : bytes_out_;
  event.duration_us = static_cast<uint64_t>((MonotonicNanos() - began_) / 1000);
  event.reason = reason;
  event.address = fault_address_.empty() ? address_ : fault_address_;
  if (!destination_) return event;
  event.name = destination_->host.name;
  event.port = destination_->port;
  event.protocol = network::ProtocolName(destination_->protocol);
  event.rule = fault_rule_.empty() ? destination_->rule : fault_rule_;
  return event;
}

void Connection::Refuse(bool allowed, std::string_view reason, std::string_view last_words) {
  ++relay_.events_.totals().refused;
  const control::Event event = MakeEvent(control::Event::kRefused, allowed, reason);
  relay_.events_.Denied(event);
  refusal_.reason = "refused";
  ends_[kServer].fd.Reset();
  if (!last_words.empty()) return Linger(last_words);
  const struct linger reset = {1, 0};
  ::setsockopt(ends_[kClient].fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  state_ = State::kLingering;
  Close("refused");
}

void Connection::Reset(const char* reason) {
  const struct linger reset = {1, 0};
  for (End& end : ends_)
    if (end.fd) ::setsockopt(end.fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  Close(reason);
}

// The connection was allowed, and what it would carry on is not.
void Connection::CutAtByteLimit() {
  ++relay_.events_.totals().refused;
  relay_.events_.Denied(MakeEvent(control::Event::kRefused, false, "byte_limit"));
  Reset("byte_limit");
}

void Connection::Close(const char* reason) {
  if (state_ == State::kClosed) return;
  if (state_ == State::kAsking) relay_.questions_.Leave(destination_->host.name, destination_->port, id_);
  if (reached_) {
    relay_.events_.Allowed(MakeEvent(control::Event::kClosed, true, reason));
  } else if (state_ != State::kLingering) {
    const struct linger reset = {1, 0};
    ::setsockopt(ends_[kClient].fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    ++relay_.events_.totals().refused;
    relay_.events_.Denied(MakeEvent(control::Event::kRefused, IsOwnWill(reason), reason));
  }
  state_ = State::kClosed;
  for (End& end : ends_) end.fd.Reset();
  relay_.Remove(id_);
}

}  // namespace caisson::egress
