#include "service/log.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "service/documents.h"

namespace caisson::service {

void LogLine(const char* level, std::string_view what,
             std::initializer_list<std::pair<const char*, std::string>> members) {
  nlohmann::json line = {{"time", UtcNow()}, {"level", level}, {"what", what}};
  for (const auto& [name, value] : members) line[name] = value;
  const std::string text = Dump(line) + "\n";
  // The service goes on if its log cannot be written.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace caisson::service
