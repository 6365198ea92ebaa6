// Tells a stranger's server that a job ended: one POST of the result, signed, to an address the rules allow.
//
// SECURITY: the URL is hostile. Its name is resolved once, every address is judged, and the connection goes to the very
// address that was judged, so that a name cannot change its mind in between. Redirects are not followed, the answer's
// body is not read, and everything together has a deadline.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "service/address_rules.h"

namespace caisson::service {

struct Delivery {
  std::string url;
  std::string job_id;
  int64_t attempt = 1;  // of the delivery
  std::string body;
};

class CallbackSender {
 public:
  // `secret` signs: Caisson-Signature: t=SECONDS,v1=HEX, the HMAC-SHA256 of "SECONDS.BODY".
  CallbackSender(AddressRules rules, std::string secret) : rules_(std::move(rules)), secret_(std::move(secret)) {}

  // The answer's status. kDenied when no address of the host is allowed: that will not change by trying again.
  Result<int> Send(const Delivery& delivery, int64_t timeout_ms) const;

 private:
  AddressRules rules_;
  std::string secret_;
};

std::string CallbackSignature(const std::string& secret, int64_t unix_seconds, const std::string& body);

}  // namespace caisson::service
