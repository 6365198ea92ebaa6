// The front of a connection: what its client must show before anything is dialled, and what it may send afterwards.
#include <algorithm>
#include <span>

#include "base/mutation.h"
#include "egress/connection.h"

namespace caisson::egress {
namespace {

// Fatal alerts that tell the client the cause: unrecognized_name and handshake_failure.
constexpr std::string_view kAlertName("\x15\x03\x01\x00\x02\x02\x70", 7);
constexpr std::string_view kAlertFailure("\x15\x03\x01\x00\x02\x02\x28", 7);

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

void Connection::StepProxy() {
  for (;;) {
    bool ended = false;
    const std::string_view bytes = PeekClient(ended);
    const ProxyStep step = proxy_.Parse(bytes);
    if (step.state == ProxyStep::State::kMore) {
      if (ended) Close("client_gone");
      return;
    }
    if (step.state == ProxyStep::State::kRefused) return Refuse(false, step.reason, step.reply);
    Drop(ends_[kClient], step.consumed);
    if (step.state == ProxyStep::State::kReply) {
      Say(step.reply);
      continue;
    }
    const network::HostPort& asked = step.destination;
    network::Decision decision = relay_.rules_.Decide(asked.host, asked.port);
    destination_ = Destination{asked.host, asked.port, decision.allowed_port.protocol, decision.rule};
    network::Decision by_name;
    if (decision.allowed && !asked.host.address && relay_.names_.Allocate(asked.host, by_name) == nullptr)
      decision = by_name;
    if (!decision.allowed) return Refuse(false, decision.reason, proxy_.Denied(decision.reason));
    // Grants the request before reaching the destination, because the client's first bytes are part of the check.
    Say(proxy_.Granted());
    state_ = State::kFirstBytes;
    if (destination_->protocol == network::Protocol::kHttp) gate_ = MakeGate();
    if (destination_->protocol == network::Protocol::kTcp) return Dial();
    relay_.loop_.SetDeadline(*this, After(relay_.settings_.first_bytes_ms));
    return StepFirstBytes();
  }
}

void Connection::StepFirstBytes() {
  bool ended = false;
  const std::string_view bytes = PeekClient(ended);
  if (!bytes.empty() && gate_) {
    JudgeRequest(bytes);
  } else if (!bytes.empty()) {
    JudgeHello(bytes);
  }
  if (state_ == State::kFirstBytes && ended) {
    if (bytes.empty()) return Close("client_gone");
    Refuse(false, "first_bytes_missing", "");
  }
}

// Refuses a ClientHello that is not whole or names another server.
void Connection::RefuseHello(ClientHello::State state) {
  switch (state) {
    case ClientHello::State::kMore:
      return;
    case ClientHello::State::kNotTls:
      return Refuse(false, "not_tls", "");
    case ClientHello::State::kOversized:
      return Refuse(false, "oversized_client_hello", kAlertFailure);
    case ClientHello::State::kNoName:
      return Refuse(false, "sni_missing", kAlertName);
    case ClientHello::State::kBadName:
      return Refuse(false, "sni_malformed", kAlertName);
    case ClientHello::State::kWhole:
      return Refuse(false, "sni_mismatch", kAlertName);
  }
}

void Connection::JudgeHello(std::string_view bytes) {
  const ClientHello hello = ParseClientHello(AsBytes(bytes));
  if (hello.state != ClientHello::State::kWhole ||
      (hello.name != destination_->host.name && !CAISSON_LEFT_OUT("hello_names_listener")))
    return RefuseHello(hello.state);
  second_hello_ = std::make_unique<SecondHello>(hello.name, hello.size);
  Dial();
}

void Connection::JudgeRequest(std::string_view bytes) {
  const HttpGate::Verdict verdict = gate_->Judge(bytes);
  judged_ = verdict.forward;
  if (verdict.status != 0 && judged_ == 0)
    return Refuse(false, verdict.reason, HttpRefusal(verdict.status, verdict.reason));
  refusal_ = verdict;  // refusal of a second request that came with a good first one
  if (judged_ > 0) Dial();
}

// Judges what the client sends until the server has answered its ClientHello.
size_t Connection::JudgeSecondHello(std::string_view bytes) {
  if (judged_ >= bytes.size()) return judged_;
  const SecondHello::Verdict verdict = second_hello_->Judge(AsBytes(bytes.substr(judged_)));
  judged_ += verdict.forward;
  const bool waits = judged_ < bytes.size() && second_hello_->has_begun();
  if (second_hello_->is_over() || (waits && relay_.loop_.deadline(*this) == 0))
    relay_.loop_.SetDeadline(*this, waits ? After(relay_.settings_.first_bytes_ms) : 0);
  if (verdict.mismatch || verdict.state != ClientHello::State::kWhole) RefuseHello(verdict.state);
  return judged_;
}

size_t Connection::JudgeBytes(std::string_view bytes) {
  if (second_hello_ && second_hello_->is_over()) second_hello_.reset();
  if (second_hello_) return JudgeSecondHello(bytes);
  if (!gate_) return bytes.size();
  if (state_ == State::kRefusing) return judged_;
  if (judged_ < bytes.size()) {
    const HttpGate::Verdict verdict = gate_->Judge(bytes.substr(judged_));
    judged_ += verdict.forward;
    if (verdict.status != 0) {
      refusal_ = verdict;
      state_ = State::kRefusing;
    }
    const bool waits = judged_ < bytes.size() && gate_->at_rest();
    if (!waits) relay_.loop_.SetDeadline(*this, 0);
    if (waits && relay_.loop_.deadline(*this) == 0)
      relay_.loop_.SetDeadline(*this, After(relay_.settings_.first_bytes_ms));
  }
  return judged_;
}

// Reads the beginning of the server's first answer where it decides what the client may send next: the answer to a
// ClientHello, or to a request to become a WebSocket. Returns false while it is incomplete.
bool Connection::ReadAnswer(std::string_view bytes) {
  constexpr std::string_view kSwitching = "HTTP/1.1 101";
  if (second_hello_) {
    if (!second_hello_->ReadAnswer(AsBytes(bytes))) return false;
  } else {
    if (bytes.size() < kSwitching.size() && bytes == kSwitching.substr(0, bytes.size())) return false;
    gate_->AnswerUpgrade(bytes.substr(0, kSwitching.size()) == kSwitching);
  }
  ends_[kClient].readable = true;
  relay_.loop_.Queue(*this);
  return true;
}

}  // namespace caisson::egress
