// Tells an untrusted server that a job ended: one signed POST of the result, to an address that the rules allow.
//
// SECURITY: the URL is hostile. Its name is resolved once, every address is judged, and the connection goes to the very
// address that was judged, so that a changed DNS answer has no effect. Redirects are not followed, the answer's
// body is not read, and everything together has a deadline.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "network/address.h"
#include "service/service.h"

namespace caisson::service {

struct Delivery {
  std::string url;
  std::string job_id;
  int64_t attempt = 1;  // of the delivery
  Document body;
};

class CallbackSender {
 public:
  // `secret` signs: Caisson-Signature: t=SECONDS,v1=HEX, the HMAC-SHA256 of "SECONDS.BODY".
  CallbackSender(network::AddressRules rules, std::string secret)
      : rules_(std::move(rules)), secret_(std::move(secret)) {}

  // The answer's status. kDenied if no address of the host is allowed; a retry would not help.
  Result<int> Send(const Delivery& delivery, int64_t timeout_ms) const;

 private:
  network::AddressRules rules_;
  std::string secret_;
};

Result<std::string> CallbackSignature(const std::string& secret, int64_t unix_seconds, const Document& body);

}  // namespace caisson::service
