// The operator's log: one JSON object per line on standard error, for journald and the like.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace caisson::service {

// {"time":…,"level":"error","what":"launcher restarted",…}. Any thread; each line is written whole.
void LogLine(const char* level, std::string_view what,
             std::initializer_list<std::pair<const char*, std::string>> members = {});

}  // namespace caisson::service
