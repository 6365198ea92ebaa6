#include "service/http/connection.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "service/http/bodies.h"
#include "service/http/status.h"

namespace caisson::service::http {

namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr int64_t kWakeIntervalMs = 500;
constexpr int64_t kQuickTurns = 16;
constexpr int64_t kTurnIntervalMs = 50;
constexpr int64_t kLingerMs = 2'000;
// A body that was refused unread is discarded up to this size, so that its sender sees the answer.
constexpr int64_t kMaxLingerBytes = int64_t{64} << 20;
// Streams reserved for operators.
constexpr int64_t kOperatorStreams = 8;
constexpr char kOperator[] = "operator";

int64_t MillisUntil(int64_t deadline_ns) {
  return std::max<int64_t>(1, (deadline_ns - MonotonicNanos()) / kNanosPerMilli);
}

std::string RandomId() {
  unsigned char bytes[12];
  CAISSON_CHECK(::getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes));
  std::string id;
  for (const unsigned char byte : bytes) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

// "Thu, 31 Jan 2030 12:00:00 GMT", whatever the locale.
std::string HttpDate() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t now = ::time(nullptr);
  struct tm utc {};
  ::gmtime_r(&now, &utc);
  char text[48];
  std::snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday], utc.tm_mday,
                kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text;
}

void AddField(std::string& head, std::string_view name, std::string_view value) {
  head.append(name).append(": ");
  // SECURITY: a value with a line break would add a header field or a second answer.
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  head += "\r\n";
}

std::string ChunkHead(size_t size) {
  char text[24];
  std::snprintf(text, sizeof(text), "%zx\r\n", size);
  return text;
}

}  // namespace

bool ServerState::MakeRoom(const Peer& peer) {
  if (peer.is_operator && operators < bounds.operator_connections) return true;
  const auto crowded = [&](const std::string& address) {
    const auto oldest = std::find_if(anonymous.begin(), anonymous.end(), [&](const Connection* connection) {
      return connection->peer().address == address;
    });
    if (oldest == anonymous.end()) return false;
    (*oldest)->Close();
    return true;
  };
  const auto own = anonymous_of.find(peer.address);
  if (own != anonymous_of.end() && own->second >= bounds.connections_per_peer) return crowded(peer.address);
  const int64_t others = static_cast<int64_t>(connections.size()) - operators;
  if (static_cast<int64_t>(anonymous.size()) < bounds.anonymous_connections &&
      others < bounds.connections - bounds.operator_connections)
    return true;
  const auto most = std::max_element(anonymous_of.begin(), anonymous_of.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != anonymous_of.end() && crowded(std::string(most->first));
}

bool ServerState::Take(const std::string& owner, int64_t Holding::*what, int64_t change, int64_t bound_of_one,
                       int64_t bound) {
  Holding& one = of[owner];
  const bool fits = one.*what + change <= bound_of_one && all.*what + change <= bound;
  if (fits) {
    one.*what += change;
    all.*what += change;
  }
  if (one.IsNothing()) of.erase(owner);
  return fits;
}

void ServerState::GiveBack(const std::string& owner, int64_t Holding::*what, int64_t change) {
  if (change == 0) return;
  const auto one = of.find(owner);
  CAISSON_CHECK(one != of.end());
  one->second.*what -= change;
  all.*what -= change;
  if (one->second.IsNothing()) of.erase(one);
}

Connection::Connection(ServerState& server, std::shared_ptr<Channel> channel, Peer peer)
    : server_(server),
      channel_(std::move(channel)),
      peer_(std::move(peer)),
      reader_(static_cast<size_t>(server.bounds.head_bytes), server.spool) {}

void Connection::Start() {
  server_.connections.insert(shared_from_this());
  if (peer_.is_operator) {
    ++server_.operators;
    owner_ = kOperator;
  } else {
    place_ = server_.anonymous.insert(server_.anonymous.end(), this);
    ++server_.anonymous_of[peer_.address];
  }
  channel_->Handshake(server_.bounds.head_timeout_ms, [self = shared_from_this()](IoEnd end, size_t) {
    if (end != IoEnd::kOk) return self->Close();
    self->ReadMore();
  });
}

void Connection::Forget() {
  if (!place_) return;
  server_.anonymous.erase(*std::exchange(place_, std::nullopt));
  const auto count = server_.anonymous_of.find(peer_.address);
  if (--count->second == 0) server_.anonymous_of.erase(count);
}

bool Connection::Identify(const Request& request) {
  if (!request.caller) return true;
  // An operator with a tenant's token has reserved connections, and the tenant's bounds for everything else.
  const std::string owner =
      peer_.is_operator && !request.Field("authorization") ? kOperator : "tenant " + request.caller->tenant;
  if (owner == owner_) return true;
  if (std::exchange(counted_, false)) server_.GiveBack(owner_, &Holding::connections, 1);
  owner_ = owner;
  if (peer_.is_operator) return true;
  Forget();
  counted_ =
      server_.Take(owner_, &Holding::connections, 1, server_.bounds.connections_per_tenant, server_.bounds.connections);
  return counted_;
}

bool Connection::HoldAnswer(int64_t bytes) {
  ReleaseAnswer();
  if (!server_.Take(owner_, &Holding::answer_bytes, bytes, server_.bounds.answer_bytes_per_tenant,
                    server_.bounds.answer_bytes))
    return false;
  answer_bytes_ = bytes;
  return true;
}

void Connection::ReleaseAnswer() { server_.GiveBack(owner_, &Holding::answer_bytes, std::exchange(answer_bytes_, 0)); }

int64_t Connection::WriteTimeout() const {
  const auto bytes = static_cast<int64_t>(head_.size() + body_.size());
  return server_.bounds.write_timeout_ms + bytes * 1000 / std::max<int64_t>(1, server_.bounds.write_bytes_per_second);
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  channel_->Close();
  wake_timer_.reset();
  Report();
  ReleaseAnswer();
  server_.GiveBack(owner_, &Holding::buffered_bytes, std::exchange(buffered_bytes_, 0));
  if (std::exchange(counted_as_stream_, false)) server_.GiveBack(owner_, &Holding::streams, 1);
  if (std::exchange(counted_, false)) server_.GiveBack(owner_, &Holding::connections, 1);
  Forget();
  if (peer_.is_operator) --server_.operators;
  server_.connections.erase(self);
  if (server_.draining && server_.connections.empty()) server_.on_empty();
}

void Connection::Drain() {
  keep_open_ = false;
  if (phase_ == Phase::kReading && !reader_.started()) return Close();
  if (stream_) return Close();
  if (waiter_) OnWake();  // a draining server does not wait: see PollWaiter
}

// --- Reading

void Connection::ReadMore() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kReading;
  if (!reader_.started() && server_.draining) return Close();
  const int64_t timeout_ms = reader_.started() ? MillisUntil(read_deadline_ns_) : server_.bounds.idle_timeout_ms;
  channel_->Read(input_.data(), input_.size(), timeout_ms,
                 [self = shared_from_this()](IoEnd end, size_t bytes) { self->OnRead(end, bytes); });
}

void Connection::OnRead(IoEnd end, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (end != IoEnd::kOk) {
    if (!reader_.started() || end == IoEnd::kFailed) return Close();
    if (end == IoEnd::kTimeout) return Refuse(408, "the request did not arrive in time");
    return Refuse(400, "the connection ended within a request");
  }
  if (!reader_.started()) BeginRequest();
  Advance(reader_.Take({input_.data(), bytes}));
}

void Connection::BeginRequest() {
  request_id_ = RandomId();
  begun_ns_ = MonotonicNanos();
  // The time limit covers the whole head: single bytes do not renew it.
  read_deadline_ns_ = begun_ns_ + server_.bounds.head_timeout_ms * kNanosPerMilli;
}

void Connection::Advance(State state) {
  switch (state) {
    case State::kHead:
    case State::kBody:
      return MonotonicNanos() < read_deadline_ns_ || !reader_.started()
                 ? ReadMore()
                 : Refuse(408, "the request did not arrive in time");
    case State::kBegun:
      return OnBegun();
    case State::kWhole:
      return Handle();
    case State::kRefused:
      return Refuse(reader_.fault().status, reader_.fault().reason);
  }
}

void Connection::OnBegun() {
  Request& request = reader_.request();
  request.id = request_id_;
  request.peer = peer_;
  keep_open_ = reader_.keep_alive() && !server_.draining;
  std::variant<int64_t, Response> judged = server_.handler->Begin(request);
  if (!Identify(request))
    return Refuse(429,
                  "this tenant has too many connections; at most " +
                      std::to_string(server_.bounds.connections_per_tenant) + " are kept for one",
                  1);
  if (auto* refusal = std::get_if<Response>(&judged)) {
    // The unread rest of the body would be parsed as the next request, so the connection must close.
    return Respond(std::move(*refusal), keep_open_ && request.content_length == 0);
  }
  if (request.content_length > std::get<int64_t>(judged)) {
    return Refuse(413, "the body has " + std::to_string(request.content_length) + " bytes; at most " +
                           std::to_string(std::get<int64_t>(judged)) + " are accepted here");
  }
  if (!server_.Take(owner_, &Holding::buffered_bytes, request.content_length, server_.bounds.buffered_bytes_per_tenant,
                    server_.bounds.buffered_bytes))
    return Refuse(503, "too many large requests at once", 1);
  buffered_bytes_ = request.content_length;
  read_deadline_ns_ =
      MonotonicNanos() + server_.bounds.head_timeout_ms * kNanosPerMilli +
      request.content_length * 1000 / std::max<int64_t>(1, server_.bounds.body_bytes_per_second) * kNanosPerMilli;
  if (!reader_.expects_continue() || request.content_length == 0) return Advance(reader_.AcceptBody());
  phase_ = Phase::kWriting;
  channel_->Write("HTTP/1.1 100 Continue\r\n\r\n", {}, WriteTimeout(), [self = shared_from_this()](IoEnd end, size_t) {
    if (end != IoEnd::kOk) return self->Close();
    self->Advance(self->reader_.AcceptBody());
  });
}

// --- Handling

void Connection::Handle() {
  phase_ = Phase::kHandling;
  // At most one posted call at a time: a job that writes a lot must not flood the loop.
  const Wake wake = [weak = weak_from_this(), mailbox = server_.mailbox,
                     on_its_way = std::make_shared<std::atomic<bool>>(false)] {
    if (on_its_way->exchange(true)) return;
    mailbox->Post([weak, on_its_way] {
      *on_its_way = false;
      if (const auto self = weak.lock()) self->OnWake();
    });
  };
  const bool taken = server_.pool->Try(owner_, [self = shared_from_this(), wake] {
    const auto answer = std::make_shared<Answer>(self->server_.handler->Handle(self->reader_.request(), wake));
    self->KeepLargeInFile(*answer);
    self->server_.network->Post([self, answer] { self->OnAnswer(std::move(*answer)); });
  });
  if (!taken) Respond(server_.handler->Refuse(503, "all threads are busy", 1), keep_open_);
}

void Connection::OnAnswer(Answer answer) {
  if (phase_ == Phase::kClosed) return;
  if (auto* response = std::get_if<Response>(&answer)) return Respond(std::move(*response), keep_open_);
  if (auto* streamed = std::get_if<Streamed>(&answer)) return BeginStream(std::move(*streamed));
  BeginWaiting(std::move(std::get<Awaited>(answer)));
}

template <typename Some>
void Connection::KeepLargeInFile(Some& answer) const {
  auto* response = std::get_if<Response>(&answer);
  if (response == nullptr || static_cast<int64_t>(response->body.size()) <= kMaxBodyInMemory) return;
  Result<Streamed> streamed = Spooled(std::move(*response), server_.spool);
  if (streamed)
    answer = *std::move(streamed);
  else
    answer = server_.handler->Refuse(503, "there is no room for the answer now", 1);
}

void Connection::OnReply(Reply reply) {
  if (auto* response = std::get_if<Response>(&reply)) return Respond(std::move(*response), keep_open_);
  BeginStream(std::move(std::get<Streamed>(reply)));
}

bool Connection::CountAsStream() {
  if (counted_as_stream_) return true;
  const int64_t kept = owner_ == kOperator ? 0 : std::min(kOperatorStreams, server_.bounds.streams / 8);
  counted_as_stream_ =
      server_.Take(owner_, &Holding::streams, 1, server_.bounds.streams_per_tenant, server_.bounds.streams - kept);
  return counted_as_stream_;
}

void Connection::BeginStream(Streamed streamed) {
  if (server_.draining) return Refuse(503, "the service is stopping", 1);
  // A stream of known length ends by itself within the time limit of its reader, so it counts as a connection only.
  if (!streamed.content_length && !CountAsStream()) return Refuse(503, "too many streams at once", 5);
  waiter_.reset();
  stream_ = std::move(streamed.body);
  chunked_ = !streamed.content_length.has_value();
  last_piece_ = broken_ = woken_ = false;
  WriteHead(streamed.head, streamed.content_length, chunked_);
  NextPiece();
}

void Connection::NextPiece() {
  phase_ = Phase::kHandling;
  ++turns_;
  turn_ns_ = MonotonicNanos();
  woken_ = false;
  busy_ = true;
  server_.pool->Add(owner_, [self = shared_from_this()] {
    const auto piece = std::make_shared<BodyStream::Piece>(self->stream_->Next());
    self->server_.network->Post([self, piece] { self->OnPiece(std::move(*piece)); });
  });
}

void Connection::OnPiece(BodyStream::Piece piece) {
  busy_ = false;
  if (phase_ == Phase::kClosed) return;
  if (piece.then == BodyStream::Piece::Then::kEnd) {
    last_piece_ = true;
    broken_ = piece.broken;
  }
  body_ = std::move(piece.bytes);
  if (chunked_) {
    if (!body_.empty()) {
      head_ += ChunkHead(body_.size());
      body_ += "\r\n";
    }
    if (last_piece_ && !broken_) body_ += "0\r\n\r\n";
  }
  // The head is sent even without data, because the peer waits for it.
  if (!head_.empty() || !body_.empty()) {
    // An answer that has begun can no longer be refused; the missing end tells the peer that it is incomplete.
    if (!HoldAnswer(static_cast<int64_t>(body_.size()))) return Close();
    woken_ = woken_ || piece.then == BodyStream::Piece::Then::kMore;
    phase_ = Phase::kWriting;
    channel_->Write(head_, body_, WriteTimeout(), [self = shared_from_this()](IoEnd end, size_t bytes) {
      self->bytes_sent_ += static_cast<int64_t>(bytes);
      if (end != IoEnd::kOk) return self->Close();
      self->OnWritten();
    });
    return;
  }
  if (last_piece_) return OnWritten();
  if (piece.then == BodyStream::Piece::Then::kMore || woken_) return NextPiece();
  AwaitWake();
}

void Connection::BeginWaiting(Awaited awaited) {
  if (!CountAsStream()) return Refuse(503, "too many waiting requests at once", 5);
  waiter_ = std::move(awaited.waiter);
  route_ = std::move(awaited.route);
  wait_until_ns_ = MonotonicNanos() + awaited.timeout_ms * kNanosPerMilli;
  PollWaiter();
}

void Connection::PollWaiter() {
  phase_ = Phase::kHandling;
  ++turns_;
  turn_ns_ = MonotonicNanos();
  woken_ = false;
  busy_ = true;
  const bool last = server_.draining || MonotonicNanos() >= wait_until_ns_;
  server_.pool->Add(owner_, [self = shared_from_this(), last] {
    const auto reply = std::make_shared<std::optional<Reply>>(self->waiter_->Poll(last));
    if (*reply) self->KeepLargeInFile(**reply);
    self->server_.network->Post([self, reply] {
      self->busy_ = false;
      if (self->phase_ == Phase::kClosed) return;
      if (*reply) return self->OnReply(std::move(**reply));
      if (self->woken_) return self->PollWaiter();
      self->AwaitWake();
    });
  });
}

void Connection::AwaitWake() {
  phase_ = Phase::kWaiting;
  int64_t interval_ms = kWakeIntervalMs;
  if (waiter_) interval_ms = std::min(interval_ms, MillisUntil(wait_until_ns_));
  wake_timer_ = server_.network->After(interval_ms, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnWake();
  });
}

void Connection::OnWake() {
  woken_ = true;
  if (phase_ != Phase::kWaiting) return;  // a turn is already due
  // Each turn queries the store. The first turns run at once; those of a job with much output are spaced.
  const int64_t since_ms = (MonotonicNanos() - turn_ns_) / kNanosPerMilli;
  if (turns_ > kQuickTurns && since_ms < kTurnIntervalMs) {
    wake_timer_ = server_.network->After(kTurnIntervalMs - since_ms, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->OnWake();
    });
    return;
  }
  wake_timer_.reset();
  if (stream_)
    NextPiece();
  else if (waiter_)
    PollWaiter();
}

// --- Writing

void Connection::WriteHead(const Response& response, std::optional<int64_t> content_length, bool chunked) {
  status_ = response.status;
  route_ = response.route;
  fault_ = response.fault;
  head_ = "HTTP/1.1 " + std::to_string(response.status) + " " + ReasonPhrase(response.status) + "\r\n";
  AddField(head_, "Date", HttpDate());
  AddField(head_, "X-Request-Id", request_id_);
  for (const auto& [name, value] : response.fields) AddField(head_, name, value);
  if (content_length && response.status != 204) AddField(head_, "Content-Length", std::to_string(*content_length));
  if (chunked) AddField(head_, "Transfer-Encoding", "chunked");
  if (!keep_open_) AddField(head_, "Connection", "close");
  head_ += "\r\n";
}

void Connection::Respond(Response response, bool keep_open) {
  keep_open_ = keep_open && !server_.draining;
  if (!HoldAnswer(static_cast<int64_t>(response.body.size()))) {
    response = server_.handler->Refuse(503, "too many answers wait to be read", 1);
    // This answer is small, and the connection ends with it.
    keep_open_ = false;
  }
  WriteHead(response, static_cast<int64_t>(response.body.size()), false);
  body_ = reader_.request().method == "HEAD" ? std::string() : std::move(response.body);
  phase_ = Phase::kWriting;
  channel_->Write(head_, body_, WriteTimeout(), [self = shared_from_this()](IoEnd end, size_t bytes) {
    self->bytes_sent_ += static_cast<int64_t>(bytes);
    if (end != IoEnd::kOk) return self->Close();
    self->last_piece_ = true;
    self->OnWritten();
  });
}

void Connection::Refuse(int status, const std::string& detail, int retry_after_s) {
  Respond(server_.handler->Refuse(status, detail, retry_after_s), false);
}

void Connection::OnWritten() {
  if (phase_ == Phase::kClosed) return;
  // An idle connection holds no buffers.
  head_ = std::string();
  body_ = std::string();
  ReleaseAnswer();
  if (stream_ && !last_piece_) {
    if (woken_) return NextPiece();
    return AwaitWake();
  }
  FinishRequest();
  if (broken_) return Close();  // without the last chunk, so the peer sees that it is incomplete
  if (!keep_open_) return Linger();
  phase_ = Phase::kReading;
  BeginRequest();
  Advance(reader_.Next());
}

void Connection::Report() {
  if (status_ == 0) return;
  if (server_.on_finished) {
    server_.on_finished({request_id_, reader_.request().method, route_, status_, peer_.address,
                         (MonotonicNanos() - begun_ns_) / kNanosPerMilli, bytes_sent_, fault_});
  }
  status_ = 0;
  bytes_sent_ = 0;
}

void Connection::FinishRequest() {
  Report();
  stream_.reset();
  waiter_.reset();
  turns_ = 0;
  last_piece_ = false;
  server_.GiveBack(owner_, &Holding::buffered_bytes, std::exchange(buffered_bytes_, 0));
  if (std::exchange(counted_as_stream_, false)) server_.GiveBack(owner_, &Holding::streams, 1);
}

// Closing a socket while the peer still sends causes a reset, which can overtake our answer. So we stop sending, and
// read and discard input for a while.
void Connection::Linger() {
  phase_ = Phase::kLingering;
  read_deadline_ns_ = MonotonicNanos() + kLingerMs * kNanosPerMilli;
  channel_->EndSending(kLingerMs, [self = shared_from_this()](IoEnd end, size_t) {
    if (end != IoEnd::kOk) return self->Close();
    self->LingerOn();
  });
}

void Connection::LingerOn() {
  if (phase_ == Phase::kClosed) return;
  if (lingered_bytes_ > kMaxLingerBytes || MonotonicNanos() >= read_deadline_ns_) return Close();
  channel_->Read(input_.data(), input_.size(), MillisUntil(read_deadline_ns_),
                 [self = shared_from_this()](IoEnd end, size_t bytes) {
                   if (end != IoEnd::kOk) return self->Close();
                   self->lingered_bytes_ += static_cast<int64_t>(bytes);
                   self->LingerOn();
                 });
}

}  // namespace caisson::service::http
