// The documents that the service writes: digests of requests and plans, approvals, dead letters, events.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "store/job.h"
#include "verify/admission.h"
#include "verify/approval.h"
#include "verify/job_message.h"

namespace caisson::service {

// Members sorted, no blanks: equal for bodies that mean the same. Its idempotency key is left out, because the key may
// come in a header as well.
std::string RequestDigest(nlohmann::json body);

// The digest of what an approval covers: the request, its policy, the bytes of its source and the resulting commands.
// A change of any of them makes another plan.
std::string PlanDigest(const std::string& request_digest, const verify::Admitted& admitted);

std::string ToText(const verify::ApprovalRequest& request);

// As schemas/runner_api_contract.schema.json has it. `request` is the document that was submitted; `attempts` is the
// history, in order; `detail` may be empty.
std::string DeadLetterText(const store::Job& job, const std::string& request,
                           const std::vector<store::Attempt>& attempts, const verify::RetryPolicy& retry,
                           const std::string& result);

// A random name of 128 bits in hex: nonces, leases.
std::string RandomHex();
// Sorts by time: 48 bits of milliseconds followed by 80 random bits, in hex.
std::string NewJobId(int64_t now_ms);

// JSON as we write it everywhere: ASCII only, whatever the strings in it hold.
std::string Dump(const nlohmann::json& value);

}  // namespace caisson::service
