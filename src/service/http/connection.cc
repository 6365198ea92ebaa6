#include "service/http/connection.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "service/http/status.h"

namespace caisson::service::http {

namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr int64_t kWakeIntervalMs = 500;
constexpr int64_t kLingerMs = 2'000;
constexpr int64_t kMaxLingerBytes = int64_t{1} << 20;

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
  // SECURITY: a value with a line break in it would be a second field, or a second answer.
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  head += "\r\n";
}

std::string ChunkHead(size_t size) {
  char text[24];
  std::snprintf(text, sizeof(text), "%zx\r\n", size);
  return text;
}

}  // namespace

Connection::Connection(ServerState& server, std::shared_ptr<Channel> channel, Peer peer)
    : server_(server),
      channel_(std::move(channel)),
      peer_(std::move(peer)),
      reader_(static_cast<size_t>(server.bounds.head_bytes)) {}

void Connection::Start() {
  server_.connections.insert(shared_from_this());
  ++server_.connections_of[peer_.address];
  channel_->Handshake(server_.bounds.head_timeout_ms, [self = shared_from_this()](IoEnd end, size_t) {
    if (end != IoEnd::kOk) return self->Close();
    self->ReadMore();
  });
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  channel_->Close();
  wake_timer_.reset();
  Report();
  server_.buffered_bytes -= std::exchange(buffered_bytes_, 0);
  if (std::exchange(counted_as_stream_, false)) --server_.streams;
  const auto count = server_.connections_of.find(peer_.address);
  if (--count->second == 0) server_.connections_of.erase(count);
  server_.connections.erase(self);
  if (server_.draining && server_.connections.empty()) server_.on_empty();
}

void Connection::Drain() {
  keep_open_ = false;
  if (phase_ == Phase::kReading && !reader_.started()) return Close();
  if (stream_) return Close();
  if (waiter_) OnWake();  // a draining server waits for nobody: see PollWaiter
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
  // The limit is on the whole head: a byte now and then does not renew it.
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
  if (auto* refusal = std::get_if<Response>(&judged)) {
    // What is left of the body would be taken for the next request: without reading it, there is none.
    return Respond(std::move(*refusal), keep_open_ && request.content_length == 0);
  }
  if (request.content_length > std::get<int64_t>(judged)) {
    return Refuse(413, "the body has " + std::to_string(request.content_length) + " bytes; at most " +
                           std::to_string(std::get<int64_t>(judged)) + " are taken here");
  }
  if (server_.buffered_bytes + request.content_length > server_.bounds.buffered_bytes)
    return Refuse(503, "too many large requests at once", 1);
  buffered_bytes_ = request.content_length;
  server_.buffered_bytes += buffered_bytes_;
  read_deadline_ns_ =
      MonotonicNanos() + server_.bounds.head_timeout_ms * kNanosPerMilli +
      request.content_length * 1000 / std::max<int64_t>(1, server_.bounds.body_bytes_per_second) * kNanosPerMilli;
  if (!reader_.expects_continue() || request.content_length == 0) return Advance(reader_.Admit());
  phase_ = Phase::kWriting;
  channel_->Write("HTTP/1.1 100 Continue\r\n\r\n", {}, server_.bounds.write_timeout_ms,
                  [self = shared_from_this()](IoEnd end, size_t) {
                    if (end != IoEnd::kOk) return self->Close();
                    self->Advance(self->reader_.Admit());
                  });
}

// --- Handling

void Connection::Handle() {
  phase_ = Phase::kHandling;
  const Wake wake = [weak = weak_from_this(), mailbox = server_.mailbox] {
    mailbox->Post([weak] {
      if (const auto self = weak.lock()) self->OnWake();
    });
  };
  const bool taken = server_.pool->Try([self = shared_from_this(), wake] {
    const auto answer = std::make_shared<Answer>(self->server_.handler->Handle(self->reader_.request(), wake));
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

void Connection::BeginStream(Streamed streamed) {
  if (server_.draining) return Refuse(503, "the service is stopping", 1);
  if (server_.streams >= server_.bounds.streams) return Refuse(503, "too many streams at once", 5);
  ++server_.streams;
  counted_as_stream_ = true;
  stream_ = std::move(streamed.body);
  chunked_ = !streamed.content_length.has_value();
  last_piece_ = broken_ = woken_ = false;
  WriteHead(streamed.head, streamed.content_length, chunked_);
  NextPiece();
}

void Connection::NextPiece() {
  phase_ = Phase::kHandling;
  woken_ = false;
  busy_ = true;
  server_.pool->Add([self = shared_from_this()] {
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
  // The head goes out even when there is nothing to say yet: the peer waits for it.
  if (!head_.empty() || !body_.empty()) {
    woken_ = woken_ || piece.then == BodyStream::Piece::Then::kMore;
    phase_ = Phase::kWriting;
    channel_->Write(head_, body_, server_.bounds.write_timeout_ms,
                    [self = shared_from_this()](IoEnd end, size_t bytes) {
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
  if (server_.streams >= server_.bounds.streams) return Refuse(503, "too many waiting requests at once", 5);
  ++server_.streams;
  counted_as_stream_ = true;
  waiter_ = std::move(awaited.waiter);
  route_ = std::move(awaited.route);
  wait_until_ns_ = MonotonicNanos() + awaited.timeout_ms * kNanosPerMilli;
  PollWaiter();
}

void Connection::PollWaiter() {
  phase_ = Phase::kHandling;
  woken_ = false;
  busy_ = true;
  const bool last = server_.draining || MonotonicNanos() >= wait_until_ns_;
  server_.pool->Add([self = shared_from_this(), last] {
    const auto response = std::make_shared<std::optional<Response>>(self->waiter_->Poll(last));
    self->server_.network->Post([self, response] {
      self->busy_ = false;
      if (self->phase_ == Phase::kClosed) return;
      if (*response) return self->Respond(std::move(**response), self->keep_open_);
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
  if (phase_ != Phase::kWaiting) return;  // its turn comes anyway
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
  WriteHead(response, static_cast<int64_t>(response.body.size()), false);
  body_ = reader_.request().method == "HEAD" ? std::string() : std::move(response.body);
  phase_ = Phase::kWriting;
  channel_->Write(head_, body_, server_.bounds.write_timeout_ms, [self = shared_from_this()](IoEnd end, size_t bytes) {
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
  head_.clear();
  body_.clear();
  if (stream_ && !last_piece_) {
    if (woken_) return NextPiece();
    return AwaitWake();
  }
  FinishRequest();
  if (broken_) return Close();  // without the last chunk: the peer sees that it is not whole
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
  last_piece_ = false;
  server_.buffered_bytes -= std::exchange(buffered_bytes_, 0);
  if (std::exchange(counted_as_stream_, false)) --server_.streams;
}

// A socket that is closed while the peer still sends answers with a reset, and that can overtake our answer. So we
// stop sending, and read for a while what nobody will look at.
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
