// Rows of the store as API documents, as schemas/openapi.yaml describes them. Members without a value are left
// out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "service/service.h"

namespace caisson::service::http {

nlohmann::json ToJson(const store::Job& job);
nlohmann::json ToJson(const JobDetails& details);
nlohmann::json ToJson(const store::Approval& approval);
// With the envelope every lifecycle event has (schemas/lifecycle_event.schema.json); a run of the service is a job.
nlohmann::json ToJson(const store::Event& event, const std::string& job_id, const std::string& request_id);
// {"jobs": […], "next_cursor": "…"}: at most `limit` of them, the cursor when there are more.
nlohmann::json PageOf(const std::vector<store::Job>& jobs, size_t limit);

}  // namespace caisson::service::http
