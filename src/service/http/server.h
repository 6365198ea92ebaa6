// The service's HTTP server: sockets, TLS, time limits, bounds, and the threads that serve them.
//
//   CAISSON_TRY(std::unique_ptr<http::Server> server, http::StartServer(config, service));
//   …wait for SIGTERM…
//   server->Drain(30'000);
//
// HTTP is parsed strictly: ambiguous input is refused and the connection closed, so that nothing after a refused
// request is executed (request_head.h says what and why). Bodies have a Content-Length; there are no chunked requests.
//
// Threads: one serves all connections and never blocks; a pool of fixed size runs the handlers. Everything a peer can
// make us keep is bounded: connections, heads, bodies, streams, and the time each may take.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "service/http/message.h"
#include "service/service.h"

namespace caisson::service::http {

// A request that was answered, for metrics and logs.
struct Finished {
  std::string request_id;  // as in X-Request-Id
  std::string method;
  std::string route;  // a template of openapi.yaml, or empty when none matched: safe as a label
  int status = 0;
  std::string peer;  // "uid:1000", "127.0.0.1"
  int64_t duration_ms = 0;
  int64_t bytes_sent = 0;
  std::string fault;  // what failed on our side, where something did
};

// Bounds on the resources that peers can occupy. A connection is anonymous until a request on it had valid credentials;
// from then on it belongs to its tenant. If there is no room for an anonymous connection, the oldest one of the address
// with the most connections is closed, so a few addresses cannot lock out others.
struct ServerBounds {
  int64_t connections = 512;
  int64_t operator_connections = 32;    // of them, reserved for root and the service's own user on the unix socket
  int64_t anonymous_connections = 192;  // of them, at most
  int64_t connections_per_peer = 96;    // anonymous ones of one address
  int64_t connections_per_tenant = 160;
  int64_t streams = 256;  // events, followed logs and waiting requests, together; some are kept for operators
  int64_t streams_per_tenant = 96;
  int64_t head_bytes = int64_t{16} << 10;
  int64_t body_bytes = int64_t{64} << 20;          // of one request
  int64_t json_body_bytes = int64_t{10} << 20;     // the same, where it has to be read as a whole
  int64_t session_file_bytes = int64_t{64} << 20;  // of a file that is sent into a session; kept in a file
  int64_t buffered_bytes = int64_t{1} << 30;       // of all bodies being read or handled; large ones are in files
  int64_t buffered_bytes_per_tenant = int64_t{256} << 20;
  int64_t answer_bytes = int64_t{16} << 20;  // of all answers in memory; large ones are in files
  int64_t answer_bytes_per_tenant = int64_t{8} << 20;
  int64_t threads = 8;                                // run handlers
  int64_t waiting_calls = 256;                        // of one tenant, for a thread; beyond: 503
  int64_t head_timeout_ms = 10'000;                   // from its first byte to its last
  int64_t idle_timeout_ms = 60'000;                   // between two requests
  int64_t write_timeout_ms = 10'000;                  // for a piece of an answer, and …
  int64_t write_bytes_per_second = 16 << 10;          // … so much more for its size: a slower reader is dropped
  int64_t body_bytes_per_second = int64_t{64} << 10;  // a slower body is cut off (after `head_timeout_ms` of grace)
  int64_t auth_failures_per_minute = 20;              // of one peer
  int64_t heartbeat_ms = 15'000;                      // of an event stream
};

struct ServerConfig {
  std::string socket;           // path of the unix socket (0600); empty: none
  std::string listen;           // "127.0.0.1:8123", "[::1]:0"; empty: none. Needs `tokens`
  std::string tokens;           // file of bearer tokens (auth.h); empty: none
  std::string tls_certificate;  // PEM files; both or neither
  std::string tls_key;
  std::vector<std::string> allowed_hosts;  // beyond localhost, 127.0.0.1 and [::1]
  std::string local_tenant = "default";    // tenant of the service's own user and root, who have all rights
  std::string spool;                       // directory for large bodies; empty: they are kept in memory
  ServerBounds bounds;
  std::function<void(const Finished&)> on_finished;  // may be empty; must not block
};

class Server {
 public:
  // Listening when it returns. Errors name the option at fault.
  static Result<std::unique_ptr<Server>> Start(const ServerConfig& config, std::shared_ptr<Handler> handler);
  ~Server();  // without waiting for requests

  // Accepts no more connections, lets requests finish for up to `grace_ms`, and ends streams at once: their clients see
  // that they are incomplete and reconnect elsewhere. Returns when no connection is left.
  void Drain(int64_t grace_ms);

  int port() const;  // of `listen`; 0: none

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A server of the API (schemas/openapi.yaml) over `service`, which must outlive it.
Result<std::unique_ptr<Server>> StartServer(const ServerConfig& config, Service& service);

}  // namespace caisson::service::http
