#include "egress/proxy_request.h"

#include <algorithm>

#include "egress/http_gate.h"

namespace caisson::egress {
namespace {

using State = ProxyStep::State;

ProxyStep Refused(std::string reply, const char* reason) {
  ProxyStep step;
  step.state = State::kRefused;
  step.reply = std::move(reply);
  step.reason = reason;
  return step;
}

// RFC 1928: version, reply, reserved, and an empty address of type IPv4.
std::string SocksReply(char code) { return {'\5', code, '\0', '\1', '\0', '\0', '\0', '\0', '\0', '\0'}; }

}  // namespace

std::string ProxyRequest::Granted() const {
  return socks_ ? SocksReply(0) : "HTTP/1.1 200 Connection established\r\n\r\n";
}

std::string ProxyRequest::Denied(std::string_view reason) const {
  return socks_ ? SocksReply(2) : HttpRefusal(403, reason);
}

ProxyStep ProxyRequest::ParseConnect(std::string_view bytes) {
  size_t end = std::string_view::npos;
  for (size_t i = 0; i < bytes.size() && end == std::string_view::npos; ++i) {
    if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r'))
      return Refused(HttpRefusal(400, "malformed_request"), "malformed_request");
    if (bytes[i] == '\n' && i >= 3 && bytes[i - 2] == '\n') end = i + 1;
  }
  if (std::min(end, bytes.size()) > kMaxProxyHead) return Refused(HttpRefusal(431, "oversized_head"), "oversized_head");
  constexpr std::string_view kMethod = "CONNECT ";
  if (bytes.size() >= kMethod.size() && bytes.substr(0, kMethod.size()) != kMethod)
    return Refused(HttpRefusal(405, "only CONNECT is offered"), "method");
  if (end == std::string_view::npos) return {};
  const std::string_view line = bytes.substr(0, bytes.find('\r'));
  const size_t last = line.rfind(' ');
  const std::string_view version = line.substr(last + 1);
  if (last < kMethod.size() || (version != "HTTP/1.1" && version != "HTTP/1.0"))
    return Refused(HttpRefusal(400, "malformed_request"), "malformed_request");
  Result<network::HostPort> destination = network::HostPort::Parse(line.substr(kMethod.size(), last - kMethod.size()));
  if (!destination) return Refused(HttpRefusal(403, "not_a_destination"), "not_a_destination");
  ProxyStep step;
  step.state = State::kDestination;
  step.consumed = end;
  step.destination = *std::move(destination);
  return step;
}

ProxyStep ProxyRequest::ParseSocksGreeting(std::string_view bytes) {
  if (bytes.size() < 2) return {};
  const size_t methods = static_cast<unsigned char>(bytes[1]);
  if (bytes.size() < 2 + methods) return {};
  if (bytes.substr(2, methods).find('\0') == std::string_view::npos) return Refused("\5\xff", "socks_authentication");
  greeted_ = true;
  ProxyStep step;
  step.state = State::kReply;
  step.consumed = 2 + methods;
  step.reply = std::string("\5\0", 2);
  return step;
}

ProxyStep ProxyRequest::ParseSocksRequest(std::string_view bytes) const {
  if (bytes.size() < 4) return {};
  if (bytes[0] != 5 || bytes[2] != 0) return Refused(SocksReply(1), "malformed_request");
  if (bytes[1] != 1) return Refused(SocksReply(7), "socks_command");  // BIND, UDP ASSOCIATE
  // An address would bypass the names in the rules, and the resolver.
  if (bytes[3] != 3) return Refused(SocksReply(8), "socks_address_type");
  if (bytes.size() < 5) return {};
  const size_t length = static_cast<unsigned char>(bytes[4]);
  if (bytes.size() < 5 + length + 2) return {};
  const auto port = static_cast<uint16_t>(static_cast<unsigned char>(bytes[5 + length]) << 8 |
                                          static_cast<unsigned char>(bytes[6 + length]));
  Result<network::Host> host = network::Host::Parse(bytes.substr(5, length));
  if (!host || port == 0) return Refused(SocksReply(2), "not_a_destination");
  ProxyStep step;
  step.state = State::kDestination;
  step.consumed = 5 + length + 2;
  step.destination = {*std::move(host), port};
  return step;
}

ProxyStep ProxyRequest::Parse(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (!socks_ && bytes[0] == 5) socks_ = true;
  if (!socks_) return ParseConnect(bytes);
  return greeted_ ? ParseSocksRequest(bytes) : ParseSocksGreeting(bytes);
}

}  // namespace caisson::egress
