// The published descriptions of the service: schemas/openapi.yaml and the schemas it refers to, embedded at build time.
#pragma once

#include <string_view>

namespace caisson::service::http {

// By file name ("openapi.yaml"); empty when there is none.
std::string_view FindSchema(std::string_view name);

}  // namespace caisson::service::http
