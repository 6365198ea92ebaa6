// Flags that run and verify share, and how they are read.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "base/unique_fd.h"
#include "policy/plan.h"
#include "verify/admission.h"

namespace caisson::cli {

struct SharedFlags {
  std::string memory, cpus, pids, timeout, output_limit, scratch, cpu_time, stack;
  std::string profile, mode = "balanced", runtime, image;
  std::string profiles, policy, role = "operator";
  std::vector<std::string> approve;
  std::string network;
  std::vector<std::string> allow_domains, deny_domains, host_ports, credentials;
  std::string credentials_file;
  bool ask = false;
  std::string events, audit;
  std::string result;
  bool json = false, quiet = false, dry_run = false;
};

void AddSharedFlags(CLI::App& app, SharedFlags& flags);
// Those of them that a session has.
void AddSessionFlags(CLI::App& app, SharedFlags& flags);

// The limits the flags ask for. 0 is refused by name.
Result<verify::OperatorLimits> ReadLimits(const SharedFlags& flags);
// The rules, the role and the runtimes by which the flags say the run is judged.
Result<verify::Authority> ReadAuthority(const SharedFlags& flags,
                                        std::vector<policy::RuntimeDescription> runtimes = {});

// "SRC:DST[:ro|cow|rw]".
Result<verify::Mount> ReadMount(const std::string& text);
Result<policy::Access> ReadAccess(const std::string& text);

// Parses, or prints help or the fault. Returns an exit code if the command is finished.
std::optional<int> Parse(CLI::App& app, std::vector<std::string> arguments, int usage_exit_code);

// Blocks the signals that end or resize us and returns a signalfd for them.
int TakeSignals();
// The same for a command that runs here: passes them on to it.
class SignalStop : public StopToken {
 public:
  SignalStop() : signals_(TakeSignals()) {}
  int fd() const override { return signals_.get(); }
  std::optional<StopRequest> Take() const override;

 private:
  UniqueFd signals_;
};

// The file for --result, opened before anything runs so that a bad path costs nothing; invalid when `path` is empty.
Result<UniqueFd> OpenResultFile(const std::string& path);
Status WriteJson(int fd, const nlohmann::json& document);

// "caisson: MESSAGE" on standard error, safe for a terminal.
void Complain(const std::string& message);

}  // namespace caisson::cli
