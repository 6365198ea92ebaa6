#include "egress/names.h"

#include <algorithm>
#include <set>

namespace caisson::egress {

const Names::Name* Names::Allocate(const network::Host& host, network::Decision& decision) {
  decision = rules_.Decide(host);
  if (!decision.allowed) return nullptr;
  if (const auto known = names_.find(host.name); known != names_.end()) return known->second.get();
  auto name = std::make_unique<Name>();
  name->host = host;
  name->allowed_ports = rules_.AllowedPorts(host);
  const auto refuse = [&decision](const char* reason) {
    decision.allowed = false;
    decision.reason = reason;
    return nullptr;
  };
  std::set<size_t> wildcards;
  for (const network::AllowedPort& allowed_port : name->allowed_ports)
    if (rules_.allow()[allowed_port.rule].is_wildcard()) wildcards.insert(allowed_port.rule);
  // A name that a rule spells out carries no bytes of the workload outside, so the limit does not apply.
  const bool spelled_out =
      std::any_of(name->allowed_ports.begin(), name->allowed_ports.end(),
                  [this](const network::AllowedPort& o) { return !rules_.allow()[o.rule].is_wildcard(); });
  if (!spelled_out) {
    for (const size_t rule : wildcards)
      if (counts_[rule] >= per_wildcard_) return refuse("name_limit");
  }
  if (openings_ + name->allowed_ports.size() > kMaxOpenings || next_ >= end_) return refuse("pool_exhausted");
  openings_ += name->allowed_ports.size();
  if (!spelled_out)
    for (const size_t rule : wildcards) ++counts_[rule];
  name->address = next_++;
  const Name* added = name.get();
  by_address_[added->address] = added;
  names_[host.name] = std::move(name);
  return added;
}

const Names::Name* Names::AllocateAsked(const network::Host& host, network::Decision& decision) {
  if (const auto known = names_.find(host.name); known != names_.end()) return known->second.get();
  if (asked_ >= per_wildcard_) {
    decision.reason = "name_limit";
    return nullptr;
  }
  if (openings_ + 2 > kMaxOpenings || next_ >= end_) {
    decision.reason = "pool_exhausted";
    return nullptr;
  }
  auto name = std::make_unique<Name>();
  name->host = host;
  name->asked = true;
  name->allowed_ports = {{443, network::Protocol::kTls, 0}, {80, network::Protocol::kHttp, 0}};
  ++asked_;
  openings_ += 2;
  name->address = next_++;
  const Name* added = name.get();
  by_address_[added->address] = added;
  names_[host.name] = std::move(name);
  return added;
}

std::vector<network::AllowedPort> Names::AddPorts(const std::string& name) {
  const auto known = names_.find(name);
  if (known == names_.end()) return {};
  std::vector<network::AllowedPort> added;
  for (const network::AllowedPort& port : rules_.AllowedPorts(known->second->host)) {
    std::vector<network::AllowedPort>& ports = known->second->allowed_ports;
    const bool has = std::any_of(ports.begin(), ports.end(), [&](const auto& one) { return one.port == port.port; });
    if (has || openings_ >= kMaxOpenings) continue;
    ++openings_;
    ports.push_back(port);
    added.push_back(port);
  }
  return added;
}

const Names::Name* Names::Find(uint32_t address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second;
}

}  // namespace caisson::egress
