#include "sandbox/network_record.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace caisson::sandbox {

namespace {

using egress::control::Event;

constexpr char kNotListed[] = "only destinations that the policy allows can be reached; add a rule for this one";
constexpr char kBadAddress[] =
    "the name leads to an address that is not public; the operator's profile can list its range as private_ranges";
constexpr char kLimited[] = "a sandbox may hold only so many connections and open only so many in a second";

int64_t Bytes(uint64_t bytes) { return static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX)); }

bool StartsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

const char* Suggestion(const Event& event) {
  if (StartsWith(event.reason, "address_")) return kBadAddress;
  if (StartsWith(event.reason, "connection_") || event.reason == "byte_limit") return kLimited;
  if (event.reason == "not_listed" || event.reason == "port_not_listed") return kNotListed;
  return "";
}

std::string ProtocolOf(const Event& event) { return event.what == Event::kLookup ? "dns" : event.protocol; }

std::string ReasonOf(const Event& event) {
  return event.allowed != 0 && event.what != Event::kRefused ? "allowed" : event.reason;
}

// A closed connection was counted when it was opened; the count of a repetition includes the first attempt.
int64_t NewAttempts(const Event& event) {
  return event.what == Event::kClosed ? 0 : event.count > 1 ? int64_t{event.count} - 1 : 1;
}

}  // namespace

NetworkUse NetworkRecord::UseOf(const Event& event) {
  NetworkUse use;
  use.name = event.name;
  use.port = event.port;
  use.protocol = ProtocolOf(event);
  use.address = event.address;
  use.rule = event.rule;
  use.reason = ReasonOf(event);
  use.allowed = event.allowed != 0;
  use.connections = NewAttempts(event);
  if (event.what == Event::kClosed) {
    use.bytes_in = Bytes(event.bytes_in);
    use.bytes_out = Bytes(event.bytes_out);
  }
  return use;
}

NetworkUse& NetworkRecord::Find(const Event& event) {
  const std::string protocol = ProtocolOf(event), reason = ReasonOf(event);
  // An allowed look-up is recorded without its address. Beyond the bound, destinations are distinguished by name only,
  // and then not at all: no workload can make the record grow further.
  for (int detail = uses_.size() < kMaxUses ? 2 : 1;; --detail) {
    std::string key = std::to_string(event.allowed) + "\n" + protocol + "\n" + reason;
    if (detail > 0) key += "\n" + event.name + "\n" + std::to_string(event.port) + "\n" + event.rule;
    if (detail > 1) key += "\n" + event.address;
    const auto found = places_.find(key);
    if (found != places_.end()) return uses_[found->second];
    if (detail > 0 && uses_.size() >= kMaxUses) continue;
    places_.emplace(std::move(key), uses_.size());
    NetworkUse use = UseOf(event);
    use.connections = use.bytes_in = use.bytes_out = 0;
    if (detail < 2) use.address.clear();
    if (detail < 1) {
      use.name.clear();
      use.rule.clear();
      use.port = 0;
    }
    return uses_.emplace_back(std::move(use));
  }
}

std::optional<Violation> NetworkRecord::Add(const Event& event) {
  NetworkUse& use = Find(event);
  const int64_t more = NewAttempts(event);
  use.connections += more;
  if (event.what == Event::kClosed) {
    use.bytes_in += Bytes(event.bytes_in);
    use.bytes_out += Bytes(event.bytes_out);
  }
  if (event.allowed != 0) return std::nullopt;
  Violation violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = event.what == Event::kLookup ? "net.dns" : "net.egress";
  violation.count = more;
  violation.evidence.emplace_back("name", event.name);
  if (event.port != 0) violation.evidence.emplace_back("port", int64_t{event.port});
  violation.evidence.emplace_back("decision", event.reason);
  for (const auto& [key, text] :
       {std::pair{"protocol", &event.protocol}, std::pair{"address", &event.address}, std::pair{"rule", &event.rule}}) {
    if (!text->empty()) violation.evidence.emplace_back(key, *text);
  }
  violation.suggestion = Suggestion(event);
  return violation;
}

}  // namespace caisson::sandbox
