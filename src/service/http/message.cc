#include "service/http/message.h"

namespace caisson::service::http {

std::optional<std::string_view> Request::Field(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return value;
  return std::nullopt;
}

}  // namespace caisson::service::http
