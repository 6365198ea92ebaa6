// Which destinations a sandbox may reach. People write the rules:
//
//   allow   example.org                 this name, port 443, TLS
//           *.example.org               names below it, at any depth, but not the name itself
//           **.example.org              the name itself and names below it
//           example.org:80              plain HTTP
//           tls://example.org:8443      TLS on another port
//           http://example.org:8080     plain HTTP on another port (without a port: 80)
//           tcp://git.example.org:22    bytes that are not inspected
//           192.0.2.7:5432              one address, as raw TCP; [2001:db8::7]:5432
//   deny    the same; without a port, every port, and without a protocol, every protocol
//
// A deny rule overrides every allow rule. The more specific of two allow rules determines the protocol of a port; two
// equally specific rules that disagree are an error. Every destination that no rule allows is denied.
//
// All components use these decisions: `caisson policy explain`, admission, and in the egress process the DNS answers,
// the listeners, CONNECT and SOCKS. This file makes no system call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "network/address.h"

namespace caisson::network {

enum class Protocol : uint8_t {
  kTls,   // the first bytes are a ClientHello, whose server name is the destination's name
  kHttp,  // HTTP/1.x, where every request's Host is the destination's name
  kTcp,   // any bytes
};
inline constexpr const char* kProtocolNames[] = {"tls", "http", "tcp"};
inline const char* ProtocolName(Protocol protocol) { return kProtocolNames[static_cast<size_t>(protocol)]; }

// A destination without its port: a normalized name, or an address.
struct Host {
  std::string name;  // for an address: its text
  std::optional<Address> address;

  // "Example.ORG.", "192.0.2.7", "[2001:db8::7]". The error completes a sentence that begins with the text.
  static Result<Host> Parse(std::string_view text);
  bool operator==(const Host& other) const { return name == other.name && address == other.address; }
};

struct HostPort {
  Host host;
  uint16_t port = 0;
  // "host:port"; the port is required.
  static Result<HostPort> Parse(std::string_view text);
};

struct Rule {
  enum class Match : uint8_t { kExact, kBelow, kAtOrBelow, kAddress };

  Match match = Match::kExact;
  Host host;
  uint16_t port = 0;                 // 0 in a deny rule: every port
  std::optional<Protocol> protocol;  // nothing in a deny rule: every protocol
  std::string label;                 // how evidence names the rule

  bool is_wildcard() const { return match == Match::kBelow || match == Match::kAtOrBelow; }
  bool Matches(const Host& other) const;
};

// The errors complete a sentence that begins with the rule.
Result<Rule> ParseAllowRule(std::string_view text);
Result<Rule> ParseDenyRule(std::string_view text);

// A rule before it is parsed. Evidence shows the label; an empty label means the text itself. The two differ when the
// rule comes from a class of destinations.
struct RuleText {
  std::string text;
  std::string label;
};

// One port at which a host may be reached.
struct AllowedPort {
  uint16_t port = 0;
  Protocol protocol = Protocol::kTls;
  size_t rule = 0;  // index into allow()
};

// Why a destination is allowed or denied.
struct Decision {
  bool allowed = false;
  const char* reason = "not_listed";  // "allowed", "denied_by_rule", "not_listed", "port_not_listed"
  std::string rule;                   // the label of the rule that decided; empty when none did
  AllowedPort allowed_port;           // when allowed
};

class RuleSet {
 public:
  RuleSet() = default;
  // The error begins with the rule at fault.
  static Result<RuleSet> Make(const std::vector<RuleText>& allow, const std::vector<RuleText>& deny);

  // Every port at which `host` may be reached, in the order of the rules; one AllowedPort for each port.
  std::vector<AllowedPort> AllowedPorts(const Host& host) const;
  // Decides a look-up of the name alone: allowed when any port is allowed.
  Decision Decide(const Host& host) const;
  Decision Decide(const Host& host, uint16_t port) const;
  // Returns the deny rule that names this address, regardless of the name that led to it; nullptr when there is none.
  const Rule* FindDenied(const Address& address, uint16_t port) const;

  const std::vector<Rule>& allow() const { return allow_; }
  const std::vector<Rule>& deny() const { return deny_; }

 private:
  const Rule* FindDeny(const Host& host, uint16_t port, Protocol protocol) const;

  std::vector<Rule> allow_;
  std::vector<Rule> deny_;
};

}  // namespace caisson::network
