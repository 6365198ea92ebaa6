// The names that a sandbox has asked for and that policy allows, each with the pool address that stands for it. This
// file makes no system call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "network/rule.h"

namespace caisson::egress {

class Names {
 public:
  static constexpr size_t kMaxOpenings = 1024;  // of all names together: each is a listener, and so a descriptor

  struct Name {
    network::Host host;
    uint32_t address = 0;
    std::vector<network::AllowedPort> allowed_ports;
    bool asked = false;  // no rule mentions it; its ports are those of TLS and HTTP
  };

  // Hands out addresses from `first` up to but not including `end`. Allows at most `per_wildcard` different names for
  // one wildcard rule: the workload chooses their labels, and each look-up of a new name carries some of its bytes
  // outside.
  Names(const network::RuleSet& rules, uint32_t first, uint32_t end, size_t per_wildcard)
      : rules_(rules), next_(first), end_(end), per_wildcard_(per_wildcard) {}

  // Returns the name, with an address, when it is allowed at any port. Otherwise `decision` gives the reason: a rule,
  // "name_limit" or "pool_exhausted".
  const Name* Allocate(const network::Host& host, network::Decision& decision);
  // The same for a name that no rule mentions and that a person may be asked about.
  const Name* AllocateAsked(const network::Host& host, network::Decision& decision);
  const Name* Find(uint32_t address) const;
  // The rules have changed: adds the ports at which a known name may be reached now, and returns those that are new.
  std::vector<network::AllowedPort> AddPorts(const std::string& name);

 private:
  const network::RuleSet& rules_;
  uint32_t next_, end_;
  size_t per_wildcard_;
  size_t openings_ = 0;
  size_t asked_ = 0;
  std::map<std::string, std::unique_ptr<Name>> names_;
  std::map<uint32_t, const Name*> by_address_;
  std::map<size_t, size_t> counts_;  // number of names for each wildcard rule
};

}  // namespace caisson::egress
