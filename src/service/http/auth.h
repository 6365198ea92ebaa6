// Authentication. A process on the unix socket is identified by its user id, which the kernel reports; a caller with a
// token is identified by the token on every socket. A token that is sent must be valid: there is no fallback to the
// user id.
//
// The reason of a refusal (unknown token, expired, malformed, unknown user) is not disclosed.
//
// Any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "service/http/message.h"
#include "service/http/server.h"
#include "service/http/tokens.h"

namespace caisson::service::http {

struct Refusal {
  int status = 401;
  std::string detail;
  int retry_after_s = 0;
};

class Authenticator {
 public:
  static Result<std::unique_ptr<Authenticator>> Make(const ServerConfig& config);

  std::variant<Caller, Refusal> Authenticate(const Request& request);

 private:
  explicit Authenticator(const ServerConfig& config);
  std::optional<Caller> ByUser(const Peer& peer) const;
  std::variant<Caller, Refusal> ByToken(std::string_view authorization, const Peer& peer);
  Refusal Fail(const Peer& peer);
  bool Reload();

  const std::string tokens_path_;
  const std::string local_tenant_;
  const int64_t failures_per_minute_;

  std::mutex mutex_;
  // The file is read again when it changes, so removing a token revokes it. While the file cannot be read, every token
  // is refused: the change may have been a revocation.
  std::vector<Token> tokens_;
  bool readable_ = true;
  struct stat read_ {};
  int64_t checked_ns_ = 0;

  // Refusals in the current minute. Guessing is hopeless anyway (tokens.h); the bound keeps a client with an old token,
  // or an attacker, from filling the log. A valid token always passes: a failing client must not lock out others behind
  // the same address.
  struct Failures {
    int64_t minute = 0;
    int64_t count = 0;
  };
  std::map<std::string, Failures> failures_;
};

}  // namespace caisson::service::http
