// session.json: what is known about a session, for every command that lists, shows or finishes it. The session's
// supervisor writes it while it lives, and afterwards the command that changes the session; always as a whole.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::session {

enum class State : uint8_t { kNew, kRunning, kIdle, kStopped, kApplied, kDiscarded, kFailed, kLost };
inline constexpr std::array<const char*, 8> kStateNames = {"opening", "running",   "idle",   "stopped",
                                                           "applied", "discarded", "failed", "lost"};
inline const char* NameOf(State state) { return kStateNames[static_cast<size_t>(state)]; }
// A supervisor is at work, or should be.
inline bool IsLive(State state) { return state <= State::kIdle; }

// How the project directory appears at /workspace.
enum class WorkspaceMode : uint8_t {
  kCow,    // the directory itself, below an overlay that keeps the changes
  kCopy,   // a private copy of it
  kEmpty,  // there is no project
};
inline constexpr std::array<const char*, 3> kWorkspaceModeNames = {"cow", "copy", "empty"};
inline const char* NameOf(WorkspaceMode mode) { return kWorkspaceModeNames[static_cast<size_t>(mode)]; }

// Of the messages on a session's control socket; a client that speaks another one says so.
inline constexpr int kProtocolVersion = 1;

struct Record {
  std::string id, name;
  State state = State::kNew;
  std::string reason;  // why it ended: "stop", "idle", "ttl", …; of a failure, the error
  WorkspaceMode workspace_mode = WorkspaceMode::kCow;
  std::string workspace;       // the project directory, canonical; empty: none
  std::string workspace_base;  // what changes are compared with: the project, or the session's own copy of it
  std::string profile, runtime, policy_digest;
  std::string created_at, opened_at, last_used_at, ended_at, expires_at;  // UTC; empty: not yet
  int64_t idle_ms = 0, ttl_ms = 0, disk_bytes = 0;
  int64_t command_timeout_ms = 0;
  int64_t pid = 0;  // of the supervisor
  int64_t uid = 0;
  int64_t commands = 0;      // how many were started
  std::string network_mode;  // "none" or "allowlist"
  std::vector<std::string> allow;
  std::map<std::string, std::string> labels;
  std::vector<std::string> notices;  // for people: what is not as asked for
  std::string events_head;           // SEQ:HASH of the last event known to be written
  std::string forked_from;           // id
  std::string diff_digest;           // of the changes that were last computed, applied or discarded
  nlohmann::json stamp;              // what apply compares the project with; null: nothing was recorded
};

nlohmann::ordered_json ToJson(const Record& record);
Result<Record> ReadRecord(std::string_view text);

// As people see it in --json documents: without what only the programs need. Absent values are null.
nlohmann::ordered_json PublicJson(const Record& record);

}  // namespace caisson::session
