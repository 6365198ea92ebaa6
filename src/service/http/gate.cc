#include "service/http/gate.h"

#include <algorithm>

#include "policy/syntax.h"

namespace caisson::service::http {

namespace {

// "host", or nothing if it is followed by something other than a port.
std::optional<std::string_view> WithoutPort(std::string_view host) {
  const size_t start = host.empty() || host.front() != '[' ? 0 : host.find(']');
  if (start == std::string_view::npos) return std::nullopt;
  const size_t colon = host.find(':', start);
  if (colon == std::string_view::npos) return host;
  const std::string_view port = host.substr(colon + 1);
  const bool fits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string_view::npos;
  return fits ? std::optional(host.substr(0, colon)) : std::nullopt;
}

}  // namespace

bool IsAllowedHost(std::string_view field, const std::vector<std::string>& allowed) {
  const auto host = WithoutPort(field);
  if (!host) return false;
  const std::string name = policy::ToLowerAscii(std::string(*host));
  if (name == "localhost" || name == "127.0.0.1" || name == "[::1]") return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& known) { return policy::ToLowerAscii(known) == name; });
}

std::optional<Refusal> JudgeOrigin(const Request& request, const std::vector<std::string>& allowed_hosts) {
  const std::string_view host = request.Field("host").value_or("");
  if (!IsAllowedHost(host, allowed_hosts))
    return Refusal{421, "this service does not answer by that name; add it to allowed_hosts if it should"};
  if (const auto origin = request.Field("origin")) {
    const std::string own = (request.peer.secure ? "https://" : "http://") + std::string(host);
    if (policy::ToLowerAscii(std::string(*origin)) != policy::ToLowerAscii(own))
      return Refusal{403, "requests from other sites are refused"};
  }
  if (const auto site = request.Field("sec-fetch-site"))
    if (*site != "same-origin" && *site != "none") return Refusal{403, "requests from other sites are refused"};
  return std::nullopt;
}

}  // namespace caisson::service::http
