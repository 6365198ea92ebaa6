// Flags that run and verify share, and how they are read.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/plan.h"
#include "verify/admission.h"

namespace caisson::cli {

struct SharedFlags {
  std::string memory, cpus, pids, timeout, output_limit, scratch;
  std::string profile, mode = "balanced";
  std::string profiles, policy, role = "operator";
  std::vector<std::string> approve;
  std::string network = "none";
  std::vector<std::string> allow_domains;
  std::string events, audit;
  std::string result;
  bool json = false, quiet = false, dry_run = false;
};

void AddSharedFlags(CLI::App& app, SharedFlags& flags);

// The limits the flags ask for. 0 is refused by name.
Result<verify::OperatorLimits> ReadLimits(const SharedFlags& flags);
// By whom and by which rules the flags say the run is to be judged.
Result<verify::Authority> ReadAuthority(const SharedFlags& flags);
Status RefuseNetwork(const SharedFlags& flags);

// "SRC:DST[:ro|cow|rw]".
Result<verify::Mount> ReadMount(const std::string& text);
Result<policy::Access> ReadAccess(const std::string& text);

// Parses, or prints help or the fault. An exit code when the command is already over.
std::optional<int> Parse(CLI::App& app, std::vector<std::string> arguments, int usage_exit_code);

// Blocks the signals that end or resize us and returns a signalfd for them.
int TakeSignals();

// The file for --result, opened before anything runs so that a bad path costs nothing; invalid when `path` is empty.
Result<UniqueFd> OpenResultFile(const std::string& path);
Status WriteJson(int fd, const nlohmann::json& document);

// "caisson: MESSAGE" on standard error, safe for a terminal.
void Complain(const std::string& message);

}  // namespace caisson::cli
