#include "client/endpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/units.h"
#include "base/words.h"
#include "linux/files.h"

namespace caisson::client {

namespace {

constexpr char kSystemSocket[] = "/run/caisson/caissond.sock";
constexpr char kStateSocket[] = "/var/lib/caisson/caissond.sock";  // caissond's default
constexpr size_t kMaxTokenBytes = 512;

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool IsLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0; }

std::string DefaultUrl() {
  for (const std::string& socket : DefaultSockets())
    if (::access(socket.c_str(), F_OK) == 0) return "unix:" + socket;
  return std::string("unix:") + kSystemSocket;
}

Result<std::string> ReadToken(const std::string& token_file) {
  std::string token = Variable("CAISSON_TOKEN").value_or("");
  if (!token_file.empty()) {
    Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, token_file.c_str(), kMaxTokenBytes + 2);
    if (!text) return Error::Invalid("--token-file: " + text.error().message);
    token = *std::move(text);
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  }
  // SECURITY: other characters could add a header field to the request.
  const bool fits = token.size() <= kMaxTokenBytes &&
                    std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!fits)
    return Error::Invalid((token_file.empty() ? "CAISSON_TOKEN" : token_file) + ": not a token (one line of ASCII)");
  return token;
}

}  // namespace

std::string UrlVariable() { return Variable("CAISSON_URL").value_or(""); }

std::vector<std::string> DefaultSockets() {
  std::vector<std::string> sockets;
  if (const auto runtime = Variable("XDG_RUNTIME_DIR")) sockets.push_back(*runtime + "/caisson/caissond.sock");
  sockets.emplace_back(kSystemSocket);
  sockets.emplace_back(kStateSocket);
  return sockets;
}

std::string Endpoint::HostField() const {
  if (!socket.empty()) return "localhost";
  return (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" + port;
}

std::string Endpoint::Description() const {
  if (!socket.empty()) return "unix:" + socket;
  return (tls ? "https://" : "http://") + HostField();
}

Result<Endpoint> ParseUrl(const std::string& url) {
  const auto fault = [&](const std::string& what) { return Error::Invalid(Quoted(url) + " " + what); };
  Endpoint endpoint;
  if (url.rfind("unix:", 0) == 0) {
    endpoint.socket = url.substr(5);
    if (endpoint.socket.rfind("//", 0) == 0) endpoint.socket.erase(0, 2);
    if (endpoint.socket.empty() || endpoint.socket.front() != '/') return fault("does not name a socket: unix:/path");
    return endpoint;
  }
  endpoint.tls = url.rfind("https://", 0) == 0;
  if (!endpoint.tls && url.rfind("http://", 0) != 0)
    return fault("is none of unix:/path, http://HOST:PORT and https://HOST[:PORT]");
  std::string authority = url.substr(endpoint.tls ? 8 : 7);
  if (!authority.empty() && authority.back() == '/') authority.pop_back();
  const bool six = !authority.empty() && authority.front() == '[';
  const size_t end = six ? authority.find(']') : authority.find(':');
  if (six && end == std::string::npos) return fault("has no closing bracket");
  endpoint.host = six ? authority.substr(1, end - 1) : authority.substr(0, end);
  const std::string rest = end == std::string::npos ? "" : authority.substr(six ? end + 1 : end);
  endpoint.port = rest.empty() ? (endpoint.tls ? "443" : "80") : rest.substr(1);
  const Result<int64_t> port = ParseCount(endpoint.port);
  if ((!rest.empty() && rest.front() != ':') || !port || *port < 1 || *port > 65535)
    return fault("has no port from 1 to 65535");
  const bool named = !endpoint.host.empty() && std::all_of(endpoint.host.begin(), endpoint.host.end(), [six](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           (six && c == ':');
  });
  if (!named) return fault("has no host; paths, users and queries do not belong here");
  return endpoint;
}

Result<Endpoint> FindEndpoint(const std::string& url, const std::string& token_file) {
  const std::string variable = UrlVariable();
  if (url.empty() && variable == kNoService)
    return Error::Invalid("CAISSON_URL says that there is no service; change it, or name a service with --url");
  const std::string chosen = !url.empty() ? url : !variable.empty() ? variable : DefaultUrl();
  Result<Endpoint> endpoint = ParseUrl(chosen);
  if (!endpoint) return std::move(endpoint).error().In(!url.empty() ? "--url" : "CAISSON_URL");
  CAISSON_TRY(endpoint->token, ReadToken(token_file));
  if (endpoint->socket.empty() && !endpoint->tls && !endpoint->token.empty() && !IsLoopback(endpoint->host))
    return Error::Invalid(endpoint->Description() + ": the token would cross the network unencrypted; use https://");
  return endpoint;
}

}  // namespace caisson::client
