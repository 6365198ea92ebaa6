// Who asks. A process on the unix socket is known by its user, as the kernel tells; anybody with a token by the token,
// wherever he comes from. A token that is given must be right: there is no falling back to the user.
//
// What was wrong with a request that is refused (no such token, expired, malformed, a user nobody knows) is not said.
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
  const std::vector<LocalCaller> local_callers_;
  const std::string local_tenant_;
  const int64_t failures_per_minute_;

  std::mutex mutex_;
  // The file is read again when it changed, so that a token is withdrawn by taking it out. While it cannot be read, no
  // token is good: the change may have been just that.
  std::vector<Token> tokens_;
  bool readable_ = true;
  struct stat read_ {};
  int64_t checked_ns_ = 0;

  // Refusals in the current minute. Guessing is hopeless anyway (tokens.h); this keeps a client with an old token, or
  // somebody who tries, from filling the log. A right token always passes: one who fails must not lock out others
  // behind the same address.
  struct Failures {
    int64_t minute = 0;
    int64_t count = 0;
  };
  std::map<std::string, Failures> failures_;
};

}  // namespace caisson::service::http
