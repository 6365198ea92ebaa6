// RunPlan: a judged request, complete and ready for any runtime. Every path in it is already an open descriptor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/decision.h"
#include "policy/limits.h"
#include "policy/path_policy.h"
#include "policy/profile.h"

namespace caisson::policy {

struct PlannedMount {
  JudgedPath source;
  std::string target;
  Access access = Access::kReadOnly;
};

enum class FileKind { kRegular, kSymlink, kDirectory };

// A file of the source, taken whole: what was hashed is what runs.
struct PlannedFile {
  std::string path;  // relative to /workspace
  std::string bytes;
  unsigned mode = 0644;
  FileKind kind = FileKind::kRegular;
};

struct PlannedCommand {
  std::string name;
  std::string tier;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;  // on top of the profile's
  std::string cwd = "/workspace";
  std::optional<std::string> stdin_bytes;
  int64_t timeout_ms = 0;
};

enum class Stdio { kCapture, kPassThrough, kTerminal };

struct RunPlan {
  Profile profile;
  Limits limits;  // the profile's, tightened by the request
  std::vector<PlannedFile> workspace_files;
  std::optional<PlannedMount> workspace_mount;
  Access workspace_access = Access::kReadOnly;
  std::vector<PlannedMount> mounts;
  std::vector<PlannedCommand> commands;
  Stdio stdio = Stdio::kCapture;
  Decision decision;
};

}  // namespace caisson::policy
