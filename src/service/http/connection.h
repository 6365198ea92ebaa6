// One connection from its first byte to its last: reads requests, has them judged and handled, and writes the answers,
// one request at a time.
//
//   read head ─▶ Begin (loop) ─▶ read body ─▶ Handle (pool) ─▶ write ─▶ next request
//                   │ refused                    ├─▶ stream: Next (pool) ─▶ write ─▶ … ─▶ next request
//                   └─▶ answer, close            └─▶ wait:   Poll (pool) ─▶ … ─▶ write
//
// Everything but Handle, Next and Poll happens on the loop's thread. A connection is held by the server's state until
// it is closed, and by the callbacks and calls that are on their way.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "service/http/call_pool.h"
#include "service/http/network.h"
#include "service/http/request_reader.h"
#include "service/http/server.h"

namespace caisson::service::http {

class Connection;

// The way back to the loop for whoever may outlive it.
class Mailbox {
 public:
  explicit Mailbox(Network& network) : network_(&network) {}
  void Post(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    if (network_ != nullptr) network_->Post(std::move(call));
  }
  void Shut() {
    const std::lock_guard lock(mutex_);
    network_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Network* network_;
};

// What all connections of a server share. Only the loop's thread touches it.
struct ServerState {
  ServerBounds bounds;
  std::shared_ptr<Handler> handler;
  std::function<void(const Finished&)> on_finished;
  Network* network = nullptr;
  std::shared_ptr<Mailbox> mailbox;
  CallPool* pool = nullptr;
  std::function<void()> on_empty;  // the last connection of a draining server went

  bool draining = false;
  std::set<std::shared_ptr<Connection>> connections;
  std::map<std::string, int64_t> connections_of;  // by Peer::address
  int64_t streams = 0;
  int64_t buffered_bytes = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerState& server, std::shared_ptr<Channel> channel, Peer peer);
  void Start();

  // Ends when the request it is at was answered, or at once when there is none, or a stream.
  void Drain();
  void Close();

 private:
  using State = RequestReader::State;
  enum class Phase : uint8_t { kReading, kHandling, kWaiting, kWriting, kLingering, kClosed };

  void ReadMore();
  void OnRead(IoEnd end, size_t bytes);
  void BeginRequest();
  void Advance(State state);
  void OnBegun();
  void Handle();
  void OnAnswer(Answer answer);

  void BeginStream(Streamed streamed);
  void NextPiece();
  void OnPiece(BodyStream::Piece piece);
  void BeginWaiting(Awaited awaited);
  void PollWaiter();
  void OnWake();
  void AwaitWake();

  void Respond(Response response, bool keep_open);
  void Refuse(int status, const std::string& detail, int retry_after_s = 0);
  void WriteHead(const Response& response, std::optional<int64_t> content_length, bool chunked);
  void OnWritten();
  void Report();
  void FinishRequest();
  void Linger();
  void LingerOn();

  ServerState& server_;
  std::shared_ptr<Channel> channel_;
  Peer peer_;
  RequestReader reader_;
  std::array<char, 16384> input_;
  Phase phase_ = Phase::kReading;

  // Of the request being served.
  std::string request_id_;
  int64_t begun_ns_ = 0;
  int64_t read_deadline_ns_ = 0;
  int64_t buffered_bytes_ = 0;  // our share of the server's
  bool keep_open_ = false;
  int status_ = 0;
  std::string route_, fault_;
  std::string head_, body_;  // being written
  int64_t bytes_sent_ = 0;

  // A stream or a waiter; never both. `busy_` while one of its turns is at the pool.
  std::unique_ptr<BodyStream> stream_;
  std::unique_ptr<Waiter> waiter_;
  std::unique_ptr<Timer> wake_timer_;
  bool counted_as_stream_ = false;
  bool chunked_ = false, busy_ = false, woken_ = false, last_piece_ = false, broken_ = false;
  int64_t wait_until_ns_ = 0;

  int64_t lingered_bytes_ = 0;
};

}  // namespace caisson::service::http
