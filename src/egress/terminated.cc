#include "egress/terminated.h"

#include <sys/socket.h>

#include <algorithm>

namespace caisson::egress {

namespace {
constexpr size_t kMostBuffered = size_t{64} << 10;
constexpr size_t kPieceBytes = size_t{16} << 10;  // as large as a record
}  // namespace

using State = TlsStream::State;

Terminated::Terminated(const Tls& tls, const Credentials& credentials, const network::Host& host, uint16_t port,
                       int client, int server)
    : credentials_(credentials), host_(host.name), port_(port), gate_(host, port) {
  ends_[kClient].stream = tls.Accept(host.name, client);
  ends_[kClient].socket = client;
  ends_[kServer].stream = tls.Connect(host.name, server);
  ends_[kServer].socket = server;
}

void Terminated::Refuse(int status, const char* reason, bool is_ours, Step& step) {
  if (!refusal_.empty()) return;
  refusal_ = HttpRefusal(status, reason);
  unjudged_.clear();
  step.refusal = reason;
  step.refusal_is_ours = is_ours;
}

void Terminated::Expire() { expired_ = true; }

void Terminated::ShakeHands(Step& step) {
  for (const Side side : {kClient, kServer}) {
    End& end = ends_[side];
    if (end.ready || end.ended) continue;
    const State state = end.stream.Handshake();
    if (state == State::kWait) continue;
    end.ready = state == State::kDone;
    if (end.ready) continue;
    end.ended = end.closed = true;
    if (side == kClient) {
      failed_ = true;  // the program does not speak HTTP/1.1 over TLS, or does not trust the authority
    } else {
      Refuse(502, end.stream.has_bad_certificate() ? "upstream_certificate" : "upstream_tls", true, step);
    }
  }
}

bool Terminated::ReadFrom(Side side, size_t& room, Step& step) {
  End& end = ends_[side];
  End& other = ends_[1 - side];
  if (!end.ready || end.ended || room == 0 || other.waiting.size() >= kMostBuffered) return false;
  if (side == kClient && (!refusal_.empty() || gate_.awaits_upgrade())) return false;
  char piece[kPieceBytes];
  size_t got = 0;
  switch (end.stream.Read(piece, std::min(sizeof(piece), room), got)) {
    case State::kWait:
      return false;
    case State::kDone:
      break;
    case State::kEnd:
      end.ended = true;
      return true;
    case State::kCut:
      end.ended = end.cut = true;
      return true;
    case State::kFailed:
      failed_ = true;
      return false;
  }
  room -= got;
  if (side == kServer) {
    step.bytes_in += got;
    unseen_.append(piece, got);
    TakeAnswers();
  } else {
    step.bytes_out += got;
    unjudged_.append(piece, got);
    TakeRequests(step);
  }
  return true;
}

void Terminated::TakeRequests(Step& step) {
  while (refusal_.empty() && !unjudged_.empty()) {
    bool is_head = false;
    const HttpGate::Verdict verdict = gate_.JudgePart(unjudged_, is_head);
    if (verdict.status != 0) return Refuse(verdict.status, verdict.reason, false, step);
    if (verdict.forward == 0) return;
    if (is_head) {
      Credentials::Edited edited =
          credentials_.Edit(host_, port_, std::string_view(unjudged_).substr(0, verdict.forward));
      if (edited.status != 0) return Refuse(edited.status, edited.reason, false, step);
      if (used_.empty() && !edited.used.empty()) step.used = used_ = edited.used;
      ends_[kServer].waiting += edited.head;
    } else {
      ends_[kServer].waiting.append(unjudged_, 0, verdict.forward);
    }
    unjudged_.erase(0, verdict.forward);
  }
}

// An answer passes as it is. Only the first bytes of the answer to an upgrade are looked at.
void Terminated::TakeAnswers() {
  if (gate_.awaits_upgrade()) {
    constexpr std::string_view kSwitching = "HTTP/1.1 101";
    const std::string_view start = std::string_view(unseen_).substr(0, kSwitching.size());
    if (start.size() < kSwitching.size() && start == kSwitching.substr(0, start.size())) return;
    gate_.AnswerUpgrade(start == kSwitching);
  }
  ends_[kClient].waiting += unseen_;
  unseen_.clear();
}

bool Terminated::SendTo(Side side, Step& step) {
  End& end = ends_[side];
  if (!end.ready || end.closed || end.waiting.empty()) return false;
  size_t written = 0;
  switch (end.stream.Write(end.waiting, written)) {
    case State::kWait:
      return false;
    case State::kDone:
      break;
    default:
      // A server that closed its end may still have sent an answer: what it sent is delivered first.
      if (side == kServer && !ends_[kServer].ended) {
        end.closed = true;
        end.waiting.clear();
        return true;
      }
      failed_ = true;
      return false;
  }
  if (side == kServer) forwarded_ = true;
  end.waiting.erase(0, written);
  (void)step;
  return true;
}

void Terminated::PassEndsOn() {
  End& client = ends_[kClient];
  End& server = ends_[kServer];
  // The server gets the end of the requests when the client has ended, or when a later request was refused.
  const bool no_more_requests = client.ended || !refusal_.empty();
  if (server.ready && no_more_requests && server.waiting.empty() && !server.closed) {
    server.closed = true;
    server.stream.End();
    ::shutdown(server.socket, SHUT_WR);
  }
  if (!refusal_.empty() && (server.ended || !forwarded_) && server.waiting.empty()) {
    client.waiting += refusal_;
    refusal_ = " ";  // said; nothing further is read
    server.ended = server.closed = true;
  }
  if (client.ready && server.ended && client.waiting.empty() && !client.closed) {
    client.closed = true;
    // What the server cut off must not look complete.
    if (!server.cut) client.stream.End();
    ::shutdown(client.socket, SHUT_WR);
  }
}

Terminated::Step Terminated::Pump(size_t room) {
  Step step;
  ShakeHands(step);
  if (expired_) {
    expired_ = false;
    if (!ends_[kClient].ready) {
      failed_ = true;
    } else if (!ends_[kServer].ready) {
      ends_[kServer].ended = ends_[kServer].closed = true;
      Refuse(502, "upstream_timeout", true, step);
    } else {
      Refuse(408, "first_bytes_timeout", false, step);
    }
  }
  for (bool moved = true; moved && !failed_;) {
    moved = ReadFrom(kServer, room, step);
    moved = ReadFrom(kClient, room, step) || moved;
    moved = SendTo(kServer, step) || moved;
    moved = SendTo(kClient, step) || moved;
    const bool refused = !refusal_.empty();
    PassEndsOn();
    moved = moved || (refused && !ends_[kClient].waiting.empty() && SendTo(kClient, step));
  }
  PassEndsOn();
  const End& client = ends_[kClient];
  step.over = failed_ || (client.closed && (client.ended || ends_[kServer].ended));
  step.clean = !failed_;
  step.has_more = room == 0 && !step.over;
  step.waits_for_head = !client.ready || !ends_[kServer].ready || (!unjudged_.empty() && gate_.at_rest());
  return step;
}

}  // namespace caisson::egress
