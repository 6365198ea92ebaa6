// Where the service stores the request of a job: in the job's row, or as a blob of its tenant when the request is
// large.
//
// SQLite has one writer for all tenants. A request of several megabytes would pass through its log while the jobs of
// all other tenants wait. PostgreSQL has no single writer, and services that share one database need not share a blob
// directory, so with PostgreSQL a request always stays in its row.
//
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "service/service_context.h"
#include "verify/request.h"

namespace caisson::service {

// Returns the value for Job::request and, if it creates a blob, adds it to `blobs`. Errors as BlobStore::Put.
Result<std::string> KeepRequest(ServiceContext& context, const std::string& tenant, std::string document,
                                std::vector<store::Blob>& blobs);

// Returns the document as it was submitted.
Result<std::string> RequestDocument(ServiceContext& context, const store::Job& job);

// Returns the parsed request, with the ids that the service gave it.
Result<verify::Request> ReadKeptRequest(ServiceContext& context, const store::Job& job);

}  // namespace caisson::service
