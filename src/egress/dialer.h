// Turns an allowed name into addresses that may be dialled. The dialer asks the resolver process only after policy has
// decided. It judges every address that the resolver returns, and dials only addresses that it has judged.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "egress/loop.h"
#include "network/address.h"
#include "network/rule.h"

namespace caisson::egress {

// The addresses to try in turn, or the reason why there is none.
struct Resolved {
  std::vector<network::Address> addresses;
  std::string
      reason;  // "no_address", "resolver_failed", "address_private", "address_own", "denied_by_rule"; empty: good
  std::string address;  // the address at fault
  std::string rule;     // the deny rule that matched
};

class Dialer : public Waiter {
 public:
  using Callback = std::function<void(const Resolved&)>;

  // `route` is a netlink socket that tells whether an address belongs to this machine.
  Dialer(Loop& loop, const network::RuleSet& rules, const network::AddressRules& addresses, UniqueFd resolver,
         UniqueFd route);

  // Calls back at once, or when the resolver has answered. A host that is an address needs no resolver.
  void Resolve(const network::Host& host, uint16_t port, Callback callback);

  // True while the resolver process lives; without it no name can be reached.
  bool alive() const { return alive_; }

  void Ready(unsigned tag, uint32_t events) override;

 private:
  struct Waiting {
    std::string name;
    std::vector<std::pair<uint16_t, Callback>> callbacks;
#ifdef CAISSON_MUTATIONS
    bool again = false;
#endif
  };
  struct Known {
    std::vector<network::Address> addresses;
    int64_t until = 0;
  };

  // One bad address makes the whole name unusable, because the next attempt could dial that address.
  Resolved Judge(const std::vector<network::Address>& addresses, uint16_t port);
  bool IsOwn(const network::Address& address);

  const network::RuleSet& rules_;
  const network::AddressRules& addresses_;
  UniqueFd resolver_, route_;
  Source source_;
  bool alive_ = true;
  uint32_t next_id_ = 1;
  std::map<uint32_t, Waiting> waiting_;
  std::map<std::string, Known> known_;
};

}  // namespace caisson::egress
