// The address of the service, and the caller's credentials.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace caisson::client {

struct Endpoint {
  std::string socket;  // a unix socket, or:
  std::string host;    // a name or an address, without brackets
  std::string port;
  bool tls = false;
  std::string token;  // empty: none

  std::string HostField() const;    // of a request
  std::string Description() const;  // as a person would write it: "unix:/run/caisson/caissond.sock"
};

// The value of CAISSON_URL; empty if it is not set. "none" means that no service is used, even if one listens here.
std::string UrlVariable();
inline constexpr char kNoService[] = "none";

// The default sockets of caissond: the user's own, if XDG_RUNTIME_DIR is set, and the machine's.
std::vector<std::string> DefaultSockets();

// "unix:/path", "http://127.0.0.1:8123", "https://runner.example.org".
Result<Endpoint> ParseUrl(const std::string& url);

// In this order: `url` (a flag), CAISSON_URL, the first of DefaultSockets that exists, /run/caisson/caissond.sock. The
// token: from `token_file` (a flag), else CAISSON_TOKEN.
//
// SECURITY: a token is not sent in the clear to another machine: kInvalid.
Result<Endpoint> FindEndpoint(const std::string& url, const std::string& token_file);

}  // namespace caisson::client
