#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/service_access.h"

namespace caisson::cli {

Progress::Progress(bool quiet, bool json) : quiet_(quiet), live_(!quiet && !json && ::isatty(STDERR_FILENO) != 0) {}

void Progress::Show(const std::string& line) {
  std::fprintf(stderr, "\r\033[K%s …", line.c_str());
  std::fflush(stderr);
}

void Progress::Clear() {
  if (live_) std::fputs("\r\033[K", stderr);
}

void Progress::Started(const std::string& check, size_t index, size_t count) {
  if (live_) Show("[" + std::to_string(index + 1) + "/" + std::to_string(count) + "] " + EscapeForTerminal(check));
}

void Progress::On(const nlohmann::json& event) {
  const std::string type = Shown(event, "type");
  if (type == "approval_requested" && !quiet_) {
    Clear();
    std::fprintf(stderr, "caisson: waits for approval; see: caisson approvals show %s\n",
                 Shown(event, "approval_id").c_str());
    return;
  }
  if (!live_) return;
  std::string line = type;
  for (const char* name : {"check", "name", "reason", "error"}) {
    const std::string text = Shown(event, name);
    if (!text.empty()) line += "  " + text.substr(0, 60);
  }
  Show(line);
}

}  // namespace caisson::cli
