// Requests and answers as the routes see them: plain values. Sockets, TLS and the HTTP library stay behind server.h, so
// that only two files are compiled against them.
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
  bool local = false;        // a unix socket: the kernel vouches for `uid`
  uint32_t uid = 0;          // of the process that connected
  bool secure = false;       // TLS
  std::string address;       // "uid:1000", "192.0.2.7", "2001:db8:1:2::/64": what bounds and failures are counted by
  bool is_operator = false;  // root or the service's own user on the unix socket: connections are reserved for them
};

struct Request {
  std::string id;  // ours, for logs and for the answer's X-Request-Id
  std::string method;
  std::string target;                                       // origin form, not decoded: "/v1/jobs?limit=10"
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case
  int64_t content_length = 0;
  std::string body;    // empty where the body is in `body_file`
  int body_file = -1;  // a large body, from offset 0 on; belongs to the connection and lives as long as the request
  Peer peer;
  std::optional<Caller> caller;  // the caller, once Handler::Begin established it

  // The field's value. The reader refuses a request with two fields of this name.
  std::optional<std::string_view> Field(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;
  // For counting and logs, never sent:
  std::string route;  // the template that matched, "/v1/jobs/{id}"
  std::string fault;  // the cause of an internal failure
};

// A body that is produced while it is sent: events as they happen, the output of a running job, a file. Next is called
// on a pool thread, one call at a time, and only after the peer has taken the previous piece.
class BodyStream {
 public:
  struct Piece {
    std::string bytes;
    enum class Then : uint8_t { kMore, kWait, kEnd } then = Then::kMore;
    bool broken = false;  // with kEnd: the rest is unavailable, so the peer must see that the body is incomplete
  };
  virtual ~BodyStream() = default;
  virtual Piece Next() = 0;
};

struct Streamed {
  Response head;                          // without a body
  std::optional<int64_t> content_length;  // absent: sent in chunks
  std::unique_ptr<BodyStream> body;
};

// An answer that depends on a future event. Poll is called on a pool thread, one call at a time; `last` means that the
// time is over and Poll must answer.
using Reply = std::variant<Response, Streamed>;
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual std::optional<Reply> Poll(bool last) = 0;
};

struct Awaited {
  int64_t timeout_ms = 0;
  std::string route;
  std::unique_ptr<Waiter> waiter;
};

// A stream or waiter gets this before its first turn and calls it, from any thread, when it may have new data. It also
// gets a turn every half second, for changes made by services on other machines.
using Wake = std::function<void()>;

using Answer = std::variant<Response, Streamed, Awaited>;

// The server's interface to the routes. Functions may be called from several threads.
class Handler {
 public:
  virtual ~Handler() = default;

  // Judges the head before any byte of the body is read. Returns the greatest permitted size of the body, or a refusal.
  // Runs on the thread that serves all connections: it must not block.
  virtual std::variant<int64_t, Response> Begin(Request& head) = 0;
  // Runs on a pool thread and may block. `wake` outlives the connection.
  virtual Answer Handle(const Request& request, const Wake& wake) = 0;
  // The answer to malformed input, or to a request for which the server has no room; `retry_after_s` 0: none.
  virtual Response Refuse(int status, const std::string& detail, int retry_after_s) = 0;
};

}  // namespace caisson::service::http
