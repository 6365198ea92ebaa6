#include "service/kept_request.h"

#include <string_view>
#include <utility>

#include "linux/files.h"

namespace caisson::service {

namespace {

constexpr size_t kMostInRow = size_t{256} << 10;
// A document begins with a brace, so a reference cannot be mistaken for one.
constexpr std::string_view kReference = "sha256:";

}  // namespace

Result<std::string> KeepRequest(ServiceContext& context, const std::string& tenant, std::string document,
                                std::vector<store::Blob>& blobs) {
  if (document.size() <= kMostInRow || context.config.database != "sqlite") return document;
  CAISSON_TRY(std::string sha256, context.blobs->Put(tenant, document));
  blobs.push_back({sha256, static_cast<int64_t>(document.size())});
  return std::string(kReference) + sha256;
}

Result<std::string> RequestDocument(ServiceContext& context, const store::Job& job) {
  if (job.request.compare(0, kReference.size(), kReference) != 0) return job.request;
  int64_t bytes = 0;
  CAISSON_TRY(const UniqueFd file,
              context.blobs->Get(job.tenant, job.request.substr(kReference.size()), &bytes, false));
  return linux_sys::ReadAt(file.get(), 0, bytes);
}

Result<verify::Request> ReadKeptRequest(ServiceContext& context, const store::Job& job) {
  CAISSON_TRY(const std::string document, RequestDocument(context, job));
  CAISSON_TRY(verify::Request request, verify::ParseRequest(document));
  request.request_id = job.request_id;
  request.attempt = job.attempt;
  return request;
}

}  // namespace caisson::service
