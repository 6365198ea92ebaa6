// The documents the service makes: digests of what was asked and of what will be run, approvals, dead letters, events.
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

// What an approval is for: the request, the policy it is held to, the bytes of its source and the commands that result.
// A change of any of them, by whomever, is another plan.
std::string PlanDigest(const std::string& request_digest, const verify::Admitted& admitted);

std::string ToText(const verify::ApprovalRequest& request);

// As schemas/runner_api_contract.schema.json has it. `attempts` is the history, in order; `detail` may be empty.
std::string DeadLetterText(const store::Job& job, const std::vector<store::Attempt>& attempts,
                           const verify::RetryPolicy& retry, const std::string& result);

// A random name of 128 bits in hex: nonces, leases.
std::string RandomHex();
// Sorts by time, then by chance: 48 bits of milliseconds and 80 random ones, in hex.
std::string NewJobId(int64_t now_ms);

// JSON as we write it everywhere: ASCII only, whatever the strings in it hold.
std::string Dump(const nlohmann::json& value);

}  // namespace caisson::service
