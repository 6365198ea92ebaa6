// The parts that several transactions share. Each runs inside one and leaves it half-done on an error: the caller's
// transaction is then undone.
//
// Rows are locked in one order, so that no two transactions wait for each other: the job, then what belongs to it, then
// the counters of waiting jobs, last and once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/sql/session.h"
#include "store/store.h"

namespace caisson::store::sql {

// The caller has reserved the numbers: `last_seq` is the job's number of events including these.
Status InsertEvents(Session& session, const std::string& job_id, int64_t last_seq, const std::vector<Event>& events);
Status InsertAttempt(Session& session, const std::string& job_id, const Attempt& attempt);
Status InsertBlobs(Session& session, const std::string& job_id, const std::vector<Blob>& blobs);

// Nothing for a note without an id.
Status InsertNote(Session& session, const AuditNote& note);

// The job with its documents.
Result<std::optional<Job>> FindWhole(Session& session, const std::string& job_id);
// The job without its documents, kept from other transactions until the end of this one. kNotFound.
Result<Job> LockJob(Session& session, const std::string& job_id);

// Ends the job that `lease` holds; with an empty token, the job without a lease. kConflict otherwise.
Status EndJob(Session& session, const Lease& lease, const End& end);

// Changes the numbers of waiting jobs, by tenant.
Status AddWaiting(Session& session, const std::map<std::string, int64_t>& changes);

// The last answers are in the order in which they were given.
Result<Approval> FindApprovalIn(Session& session, const std::string& approval_id);

Error LeaseLost(const Lease& lease);
Error NoSuchJob(const std::string& job_id);

}  // namespace caisson::store::sql
