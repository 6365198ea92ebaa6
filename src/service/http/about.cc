// Health, metrics and the published descriptions of the service.
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "service/http/problem.h"
#include "service/http/routes.h"
#include "service/http/schemas.h"

namespace caisson::service::http {

using nlohmann::json;

Answer ShowHealth(const Call&) { return Json(200, {{"status", "ok"}}); }

Answer ShowReadiness(const Call& call) {
  const Readiness readiness = call.service.Ready();
  json document = {{"ready", readiness.ready}};
  // Only authorised callers see the details.
  if (call.caller != nullptr && (call.caller->Has(Right::kMetrics) || call.caller->Has(Right::kAdmin))) {
    document["checks"] = json::object();
    for (const auto& [name, state] : readiness.checks) document["checks"][name] = state;
  }
  return Json(readiness.ready ? 200 : 503, document);
}

Answer ShowMetrics(const Call& call) {
  if (!call.caller->Has(Right::kMetrics))
    return Problem(403, "this needs the right \"metrics\", which the caller does not have");
  return Plain(200, "text/plain; version=0.0.4; charset=utf-8", call.service.Metrics());
}

Answer ShowVersion(const Call&) { return Json(200, {{"name", "caissond"}, {"version", kVersion}, {"api", "v1"}}); }

Answer ShowSchema(const Call& call) {
  const std::string name = call.request.target.substr(1, call.request.target.find('?') - 1);
  const bool yaml = name == "openapi.yaml";
  return Plain(200, yaml ? "application/yaml" : "application/schema+json", std::string(FindSchema(name)));
}

}  // namespace caisson::service::http
