#include "network/rule.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/words.h"
#include "network/name.h"

namespace caisson::network {
namespace {

std::optional<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  if (text.empty() || text[0] == '0') return std::nullopt;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return port;
}

struct SplitText {
  std::optional<Protocol> protocol;
  std::string_view host;
  uint16_t port = 0;  // 0: the text has no port
};

Result<SplitText> SplitRule(std::string_view text) {
  SplitText text_parts;
  if (const size_t mark = text.find("://"); mark != std::string_view::npos) {
    const std::string_view scheme = text.substr(0, mark);
    const auto* found = std::find(std::begin(kProtocolNames), std::end(kProtocolNames), scheme);
    if (scheme == "https") return Error::Invalid("names https; write the host alone, or tls://host:port");
    if (found == std::end(kProtocolNames))
      return Error::Invalid("has an unknown protocol; there are tls, http and tcp");
    text_parts.protocol = static_cast<Protocol>(found - std::begin(kProtocolNames));
    text.remove_prefix(mark + 3);
  }
  if (text.find_first_of("/?#@ \t") != std::string_view::npos)
    return Error::Invalid("is no destination; write host, host:port or tcp://host:port");
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  text_parts.host = has_port ? text.substr(0, colon) : text;
  if (has_port) {
    const std::optional<uint16_t> port = ParsePort(text.substr(colon + 1));
    if (!port && text_parts.host.find(':') != std::string_view::npos)
      return Error::Invalid("has an IPv6 address without brackets; write [2001:db8::7]:443");
    if (!port) return Error::Invalid("has a bad port; ports are from 1 to 65535");
    text_parts.port = *port;
  }
  return text_parts;
}

Result<Rule> ParseHostPart(std::string_view text) {
  Rule rule;
  const size_t stars = std::min(text.find_first_not_of('*'), text.size());
  if (!text.empty() && text.back() == '.') return Error::Invalid("ends with a dot; leave it out");
  if (stars == 0) {
    CAISSON_TRY(rule.host, Host::Parse(text));
    rule.match = rule.host.address ? Rule::Match::kAddress : Rule::Match::kExact;
    return rule;
  }
  if (stars > 2 || stars == text.size() || text[stars] != '.')
    return Error::Invalid("has a bad wildcard; write *.example.org or **.example.org, which includes example.org");
  CAISSON_TRY(rule.host, Host::Parse(text.substr(stars + 1)));
  if (rule.host.address) return Error::Invalid("has a wildcard in an IP address");
  rule.match = stars == 1 ? Rule::Match::kBelow : Rule::Match::kAtOrBelow;
  return rule;
}

// How closely a rule describes a host that it matches; the closest allow rule determines the protocol.
size_t Closeness(const Rule& rule) {
  return rule.is_wildcard() ? rule.host.name.size() * 2 + (rule.match == Rule::Match::kBelow ? 1 : 0) : SIZE_MAX;
}

bool Covers(const Rule& deny, uint16_t port, Protocol protocol) {
  return (deny.port == 0 || deny.port == port) && (!deny.protocol || *deny.protocol == protocol);
}

}  // namespace

Result<Host> Host::Parse(std::string_view text) {
  Host host;
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    const std::string_view inner = text.substr(1, text.size() - 2);
    if (inner.find(':') != std::string_view::npos) host.address = Address::Parse(inner);
    if (!host.address) return Error::Invalid("has brackets around something that is no IPv6 address");
  } else if (text.find(':') == std::string_view::npos) {
    host.address = Address::Parse(text);
  } else {
    return Error::Invalid("has an IPv6 address without brackets; write [2001:db8::7]:443");
  }
  if (host.address) {
    host.name = host.address->Text();
    return host;
  }
  CAISSON_TRY(host.name, NormalizeName(text));
  return host;
}

Result<HostPort> HostPort::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Error::Invalid("has no port");
  HostPort destination;
  const std::optional<uint16_t> port = ParsePort(text.substr(colon + 1));
  if (!port) return Error::Invalid("has a bad port; ports are from 1 to 65535");
  destination.port = *port;
  CAISSON_TRY(destination.host, Host::Parse(text.substr(0, colon)));
  return destination;
}

bool Rule::Matches(const Host& other) const {
  if (match == Match::kAddress || other.address) return match == Match::kAddress && host.address == other.address;
  if (match == Match::kExact) return other.name == host.name;
  return IsAtOrBelow(other.name, host.name) && (match == Match::kAtOrBelow || other.name.size() != host.name.size());
}

Result<Rule> ParseAllowRule(std::string_view text) {
  CAISSON_TRY(const SplitText text_parts, SplitRule(text));
  CAISSON_TRY(Rule rule, ParseHostPart(text_parts.host));
  rule.label = std::string(text);
  rule.port = text_parts.port;
  rule.protocol = text_parts.protocol;
  if (rule.is_wildcard() && IsPublicSuffix(rule.host.name)) {
    return Error::Invalid("is too wide: anyone can register names below " + rule.host.name +
                          "; name the domain of one owner");
  }
  if (!rule.host.address && IsAtOrBelow(rule.host.name, "localhost"))
    return Error::Invalid("is the sandbox's own loopback, which needs no rule");
  if (rule.match == Rule::Match::kAddress) {
    if (rule.port == 0) return Error::Invalid("needs a port: an address is allowed only as address:port");
    if (rule.protocol == Protocol::kTls)
      return Error::Invalid("cannot be checked: TLS to an address carries no server name; write tcp://address:port");
    if (!rule.protocol) rule.protocol = Protocol::kTcp;
    return rule;
  }
  if (!rule.protocol) {
    if (rule.port == 0) rule.port = 443;
    if (rule.port != 443 && rule.port != 80) {
      const std::string place = std::string(text_parts.host) + ":" + std::to_string(rule.port);
      return Error::Invalid("needs a protocol, because the port does not tell it; write tls://" + place + ", http://" +
                            place + " or tcp://" + place);
    }
    rule.protocol = rule.port == 443 ? Protocol::kTls : Protocol::kHttp;
  }
  if (rule.port == 0) {
    if (rule.protocol == Protocol::kTcp) return Error::Invalid("needs a port; write tcp://host:port");
    rule.port = rule.protocol == Protocol::kTls ? 443 : 80;
  }
  return rule;
}

Result<Rule> ParseDenyRule(std::string_view text) {
  CAISSON_TRY(const SplitText text_parts, SplitRule(text));
  CAISSON_TRY(Rule rule, ParseHostPart(text_parts.host));
  rule.label = std::string(text);
  rule.port = text_parts.port;
  rule.protocol = text_parts.protocol;
  return rule;
}

Result<RuleSet> RuleSet::Make(const std::vector<RuleText>& allow, const std::vector<RuleText>& deny) {
  RuleSet set;
  for (const auto& [texts, rules, parse] :
       {std::make_tuple(&allow, &set.allow_, &ParseAllowRule), std::make_tuple(&deny, &set.deny_, &ParseDenyRule)}) {
    for (const RuleText& one : *texts) {
      Result<Rule> rule = parse(one.text);
      if (!rule) return Error::Invalid(Quoted(one.text) + " " + rule.error().message);
      if (!one.label.empty()) rule->label = one.label;
      rules->push_back(*std::move(rule));
    }
  }
  for (size_t i = 0; i < set.allow_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Rule &a = set.allow_[i], &b = set.allow_[j];
      if (a.match == b.match && a.host == b.host && a.port == b.port && a.protocol != b.protocol) {
        return Error::Invalid(Quoted(allow[i].text) + " and " + Quoted(allow[j].text) +
                              " give one port two protocols; keep one of them");
      }
    }
  }
  return set;
}

const Rule* RuleSet::FindDeny(const Host& host, uint16_t port, Protocol protocol) const {
  const auto found = std::find_if(deny_.begin(), deny_.end(),
                                  [&](const Rule& rule) { return rule.Matches(host) && Covers(rule, port, protocol); });
  return found == deny_.end() ? nullptr : &*found;
}

std::vector<AllowedPort> RuleSet::AllowedPorts(const Host& host) const {
  std::vector<AllowedPort> allowed_ports;
  for (size_t i = 0; i < allow_.size(); ++i) {
    const Rule& rule = allow_[i];
    if (!rule.Matches(host)) continue;
    const AllowedPort allowed_port{rule.port, *rule.protocol, i};
    const auto same = std::find_if(allowed_ports.begin(), allowed_ports.end(),
                                   [&](const AllowedPort& o) { return o.port == rule.port; });
    if (same == allowed_ports.end()) {
      allowed_ports.push_back(allowed_port);
    } else if (Closeness(rule) > Closeness(allow_[same->rule])) {
      *same = allowed_port;
    }
  }
  allowed_ports.erase(
      std::remove_if(allowed_ports.begin(), allowed_ports.end(),
                     [&](const AllowedPort& o) { return FindDeny(host, o.port, o.protocol) != nullptr; }),
      allowed_ports.end());
  return allowed_ports;
}

Decision RuleSet::Decide(const Host& host) const {
  const std::vector<AllowedPort> allowed_ports = AllowedPorts(host);
  Decision decision;
  if (!allowed_ports.empty()) {
    decision = {true, "allowed", allow_[allowed_ports[0].rule].label, allowed_ports[0]};
    return decision;
  }
  for (const Rule& rule : deny_) {
    if (!rule.Matches(host)) continue;
    decision.reason = "denied_by_rule";
    decision.rule = rule.label;
    break;
  }
  return decision;
}

Decision RuleSet::Decide(const Host& host, uint16_t port) const {
  const std::vector<AllowedPort> allowed_ports = AllowedPorts(host);
  Decision decision;
  for (const AllowedPort& allowed_port : allowed_ports) {
    if (allowed_port.port != port) continue;
    decision = {true, "allowed", allow_[allowed_port.rule].label, allowed_port};
    return decision;
  }
  for (const Rule& rule : deny_) {
    if (!rule.Matches(host) || (rule.port != 0 && rule.port != port)) continue;
    decision.reason = "denied_by_rule";
    decision.rule = rule.label;
    return decision;
  }
  if (!allowed_ports.empty()) decision.reason = "port_not_listed";
  return decision;
}

const Rule* RuleSet::FindDenied(const Address& address, uint16_t port) const {
  for (const Rule& rule : deny_) {
    if (rule.match == Rule::Match::kAddress && rule.host.address == address && (rule.port == 0 || rule.port == port))
      return &rule;
  }
  return nullptr;
}

}  // namespace caisson::network
