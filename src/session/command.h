// One command of a session while its supervisor lives: its streams, its clients, its time limit and what is kept of its
// output.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/live_run.h"
#include "session/stream_pumps.h"

namespace caisson::session {

// Three quarters of what the kernel gives a new program (a quarter of an 8 MiB stack) for its words and variables.
inline constexpr size_t kMostArgvEnvBytes = size_t{3} << 19;

struct CommandRequest {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
  std::string cwd = "/workspace";
  int64_t timeout_ms = 0;  // 0: none
  bool terminal = false, input = false, detached = false;
  uint16_t rows = 24, columns = 80;
};

nlohmann::json ToJson(const CommandRequest& request);
Result<CommandRequest> ReadCommandRequest(const nlohmann::json& message);

// How a command ended, as clients and events are told. exit_code follows the exit codes of `caisson run`.
struct CommandEnd {
  int exit_code = 0;
  std::string ending;  // "exited", "signaled", "timeout", "output_limit", "not_executable", …
  int signal = 0;
  int exec_errno = 0;
  int64_t duration_ms = 0;
  bool left_processes = false;
  nlohmann::json usage = nlohmann::json::object();
};
nlohmann::json ToJson(const CommandEnd& end);
CommandEnd EndOf(const CommandOutcome& outcome);

// The beginning of a stream, in a file from the first byte on; the end is added when the stream ends.
class KeptOutput {
 public:
  static constexpr int64_t kHeadBytes = int64_t{1} << 20;
  static Result<KeptOutput> Create(int directory, const std::string& name);
  void Add(std::string_view bytes);
  // Adds the last bytes; `kept` holds them. Returns how many bytes between head and tail are missing.
  int64_t Finish(const ReplayBuffer& kept);

 private:
  UniqueFd file_;
  int64_t head_ = 0;
  bool finished_ = false;
};

enum class Stop : uint8_t { kNone, kTimeout, kOutputLimit, kDiskLimit, kClientGone, kSession, kAsked };

struct SessionCommand {
  uint32_t number = 0;
  CommandRequest request;
  runtime::LiveCommand live;
  std::unique_ptr<OutputPump> output, error;  // with a terminal only the first
  std::unique_ptr<InputPump> input;
  std::optional<KeptOutput> kept_output, kept_error;
  std::string started_at, ended_at;
  int64_t deadline_ms = 0;  // of the monotonic clock; 0: none
  Stop stop = Stop::kNone;  // why the supervisor ended it
  int64_t output_bytes = 0;
  std::optional<CommandEnd> end;
  uint64_t writer = 0;  // the connection whose input it gets; 0: none
  uint64_t owner = 0;   // the connection that started it and waits for it; 0: none
  bool saved = false;   // its record is final
  bool drains = false;  // it has ended, and the rest of its output is being read

  bool running() const { return !end.has_value(); }
};

// For `session log`, `show` and the API: what was run, and how it ended.
nlohmann::json ToJson(const SessionCommand& command);

}  // namespace caisson::session
