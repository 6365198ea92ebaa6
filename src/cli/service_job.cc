#include "cli/service_job.h"

#include <unistd.h>

#include "base/clock.h"
#include "cli/request_file.h"
#include "cli/service_access.h"
#include "client/event_stream.h"
#include "client/pack.h"
#include "verify/digest.h"
#include "verify/json_reader.h"
#include "verify/request.h"

namespace caisson::cli {

using nlohmann::json;

namespace {

constexpr int64_t kRetryForMs = 30'000;

Status PackPath(const std::string& path, Shipment& shipment) {
  CAISSON_TRY(client::PackedSource packed, client::PackSource(path));
  shipment.request["source"] = std::move(packed.source);
  shipment.archive = std::move(packed.archive);
  return {};
}

Status SendArchive(const client::Client& client, const std::string& archive) {
  client::Ask ask = Post("/v1/archives");
  ask.body = archive;
  ask.content_type = "application/octet-stream";
  CAISSON_TRY_VOID(client.Text(ask));
  return {};
}

}  // namespace

Result<Shipment> PackShipment(const std::string& path) {
  Shipment shipment;
  shipment.request = json::object();
  if (LooksLikeArchive(path)) {
    CAISSON_TRY(shipment.archive, ReadRequestFile(path));
    shipment.request["source"] = {{"archive", "sha256:" + verify::Sha256Hex(shipment.archive)}};
    return shipment;
  }
  if (!LooksLikeRequest(path)) {
    CAISSON_TRY_VOID(PackPath(path, shipment));
    return shipment;
  }
  CAISSON_TRY(const std::string text, ReadRequestFile(path));
  verify::JsonBounds bounds;
  bounds.max_bytes = verify::kMaxRequestBytes;
  Result<json> read = verify::ReadJson(text, bounds);
  if (!read) return std::move(read).error().In(path);
  shipment.request = *std::move(read);
  // Also checked here, so that an error names the file and needs no service.
  if (Result<verify::Request> judged = verify::ReadRequest(shipment.request, ""); !judged)
    return std::move(judged).error().In(path);
  const json& source = shipment.request["source"];
  if (source.contains("path")) {
    const std::string beside = PathBesideRequest(path, source["path"].get<std::string>());
    CAISSON_TRY_VOID(PackPath(beside, shipment));
  }
  return shipment;
}

void EnsureKey(json& request) {
  if (!request.contains("idempotency_key")) request["idempotency_key"] = verify::GenerateRequestId();
}

Result<json> SendShipment(const client::Client& client, const Shipment& shipment) {
  if (!shipment.archive.empty()) CAISSON_TRY_VOID(SendArchive(client, shipment.archive));
  const client::Ask ask = Post("/v1/jobs", shipment.request);
  const int64_t give_up_ns = MonotonicNanos() + kRetryForMs * 1'000'000;
  for (bool reached = false;;) {
    Result<json> job = client.Json(ask);
    if (job && Shown(*job, "job_id").empty()) return Error{ErrorKind::kSystem, 0, "the service's answer names no job"};
    if (job) return job;
    const bool full = job.error().kind == ErrorKind::kExhausted;
    reached = reached || full;
    // No retries for a service that never answered.
    const bool again = full || (reached && job.error().kind == ErrorKind::kSystem);
    if (!again || MonotonicNanos() > give_up_ns) return job;
    ::usleep(1'000'000);
  }
}

Result<json> AwaitResult(const client::Client& client, const std::string& job_id,
                         const std::function<void(const json&)>& on_event) {
  std::string last;
  CAISSON_TRY_VOID(client::Follow(client, job_id, 0, [&](const json& event) {
    last = event.value("type", "");
    on_event(event);
  }));
  if (last == "dead_lettered")
    return Error{ErrorKind::kSystem, 0, "the job ended without a verdict; see: caisson dlq show " + job_id};
  return client.Json(Get(JobTarget(job_id, "/result")));
}

}  // namespace caisson::cli
