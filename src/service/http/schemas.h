// The descriptions the service gives of itself: schemas/openapi.yaml and the schemas it refers to, as they were when
// the program was built.
#pragma once

#include <string_view>

namespace caisson::service::http {

// By file name ("openapi.yaml"); empty when there is none.
std::string_view FindSchema(std::string_view name);

}  // namespace caisson::service::http
