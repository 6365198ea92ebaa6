// Requests and answers as the routes see them: plain values. Sockets, TLS and the library that reads HTTP stay behind
// server.h, so that nothing but two files has to be compiled against them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "service/service.h"

namespace caisson::service::http {

// The other end of a connection, as the kernel names it.
struct Peer {
  bool local = false;   // a unix socket: `uid` is the kernel's word
  uint32_t uid = 0;     // of the process that connected
  bool secure = false;  // TLS
  std::string address;  // "uid:1000", "192.0.2.7", "2001:db8:1:2::/64": what bounds and failures are counted by
};

struct Request {
  std::string id;  // ours, for logs and for the answer's X-Request-Id
  std::string method;
  std::string target;                                       // origin form, not decoded: "/v1/jobs?limit=10"
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case
  int64_t content_length = 0;
  std::string body;
  Peer peer;
  std::optional<Caller> caller;  // who asks, once Handler::Begin established it

  // The field's value. No field that is asked for may come twice: the reader refuses that.
  std::optional<std::string_view> Field(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;
  // For counting and logs, never sent:
  std::string route;  // the template that matched, "/v1/jobs/{id}"
  std::string fault;  // what failed on our side
};

// A body that is made while it is sent: events as they happen, the output of a running job, a file. Next is called on a
// pool thread, one call at a time, and only when the peer has taken what came before.
class BodyStream {
 public:
  struct Piece {
    std::string bytes;
    enum class Then : uint8_t { kMore, kWait, kEnd } then = Then::kMore;
    bool broken = false;  // with kEnd: the rest cannot be had, so the peer must not take the body for whole
  };
  virtual ~BodyStream() = default;
  virtual Piece Next() = 0;
};

// An answer that depends on something still to happen. Poll is called on a pool thread, one call at a time; `last` says
// that the time is up and an answer has to be given.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual std::optional<Response> Poll(bool last) = 0;
};

struct Streamed {
  Response head;                          // without a body
  std::optional<int64_t> content_length;  // absent: sent in chunks
  std::unique_ptr<BodyStream> body;
};

struct Awaited {
  int64_t timeout_ms = 0;
  std::string route;
  std::unique_ptr<Waiter> waiter;
};

// A stream or waiter gets this before its first turn and calls it, from any thread, when it may have something to say.
// It is also given a turn every half second, for changes that nobody on this machine noticed.
using Wake = std::function<void()>;

using Answer = std::variant<Response, Streamed, Awaited>;

// What a server asks of those who know the routes. Functions may be called from several threads.
class Handler {
 public:
  virtual ~Handler() = default;

  // Judges the head before any byte of the body is read: the most bytes the body may have, or the refusal. Runs on the
  // thread that serves all connections: it must not block.
  virtual std::variant<int64_t, Response> Begin(Request& head) = 0;
  // Runs on a pool thread and may block. `wake` outlives the connection.
  virtual Answer Handle(const Request& request, const Wake& wake) = 0;
  // The answer to what is no request, or to what the server has no room for; `retry_after_s` 0: none.
  virtual Response Refuse(int status, const std::string& detail, int retry_after_s) = 0;
};

}  // namespace caisson::service::http
