// One connection from its first byte to its last: reads requests, has them checked and handled, and writes the answers,
// one request at a time.
//
//   read head ─▶ Begin (loop) ─▶ read body ─▶ Handle (pool) ─▶ write ─▶ next request
//                   │ refused                    ├─▶ stream: Next (pool) ─▶ write ─▶ … ─▶ next request
//                   └─▶ answer, close            └─▶ wait:   Poll (pool) ─▶ … ─▶ write
//
// Everything but Handle, Next and Poll happens on the loop's thread. The server's state and pending callbacks and calls
// keep a connection alive.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "service/http/call_pool.h"
#include "service/http/network.h"
#include "service/http/request_reader.h"
#include "service/http/server.h"

namespace caisson::service::http {

class Connection;

// A handle to the loop for objects that may outlive it.
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

// The resources that one tenant, or all tenants together, occupy.
struct Holding {
  int64_t connections = 0;
  int64_t streams = 0;
  int64_t buffered_bytes = 0;  // of bodies
  int64_t answer_bytes = 0;    // in memory

  bool IsNothing() const { return connections + streams + buffered_bytes + answer_bytes == 0; }
};

// State that all connections of a server share. Only the loop's thread uses it.
struct ServerState {
  ServerBounds bounds;
  std::string spool;
  std::shared_ptr<Handler> handler;
  std::function<void(const Finished&)> on_finished;
  Network* network = nullptr;
  std::shared_ptr<Mailbox> mailbox;
  CallPool* pool = nullptr;
  std::function<void()> on_empty;  // the last connection of a draining server was closed

  bool draining = false;
  std::set<std::shared_ptr<Connection>> connections;
  std::list<Connection*> anonymous;             // oldest first
  std::map<std::string, int64_t> anonymous_of;  // by Peer::address
  int64_t operators = 0;                        // connections of operators
  Holding all;
  std::map<std::string, Holding> of;  // by Connection's `owner`

  // Whether a connection of this peer may be opened; closes another one if that makes room.
  bool MakeRoom(const Peer& peer);
  // Adds `change` to the owner's amount and to the total; returns false and changes nothing if a bound would be
  // exceeded.
  bool Take(const std::string& owner, int64_t Holding::*what, int64_t change, int64_t bound_of_one, int64_t bound);
  void GiveBack(const std::string& owner, int64_t Holding::*what, int64_t change);
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerState& server, std::shared_ptr<Channel> channel, Peer peer);
  void Start();

  // Closes after the current request is answered; at once if there is none or it is a stream.
  void Drain();
  void Close();

  const Peer& peer() const { return peer_; }

 private:
  using State = RequestReader::State;
  enum class Phase : uint8_t { kReading, kHandling, kWaiting, kWriting, kLingering, kClosed };

  // Assigns the connection to the caller; false if the caller has too many.
  bool Identify(const Request& request);
  void Forget();  // that it is anonymous
  // Counts `bytes` of an answer in memory; false if the owner or all owners together hold too much.
  bool HoldAnswer(int64_t bytes);
  void ReleaseAnswer();
  int64_t WriteTimeout() const;

  void ReadMore();
  void OnRead(IoEnd end, size_t bytes);
  void BeginRequest();
  void Advance(State state);
  void OnBegun();
  void Handle();
  void OnAnswer(Answer answer);
  void OnReply(Reply reply);
  // Pool thread.
  template <typename Some>
  void KeepLargeInFile(Some& answer) const;
  bool CountAsStream();  // false when the owner or all have too many

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
  // The owner: "tenant …", "operator", or empty while the connection is anonymous.
  std::string owner_;
  bool counted_ = false;                                   // as one of the owner's connections
  std::optional<std::list<Connection*>::iterator> place_;  // among the anonymous ones

  // Of the request being served.
  std::string request_id_;
  int64_t begun_ns_ = 0;
  int64_t read_deadline_ns_ = 0;
  int64_t buffered_bytes_ = 0;  // our share of the owner's
  int64_t answer_bytes_ = 0;    // likewise
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
  int64_t turns_ = 0, turn_ns_ = 0;

  int64_t lingered_bytes_ = 0;
};

}  // namespace caisson::service::http
