// Host: how the harness starts sandboxes and controls. A black box: it runs the caisson program and reads what that
// writes. Runs: host.
//
// A judge of a row gets one. Two sandboxes at once:
//
//   Sandbox a = host.Start({.command = host.ProbeCommand("D03/make")});
//   std::string line;
//   if (!a.process.ReadLine(&line, kPatienceMs)) return Broken("...");
//   const Outcome b = host.Run({.command = host.ProbeCommand("D03/find")});
//   const Outcome ended = host.Finish(std::move(a));
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "escape/process.h"
#include "escape/row.h"

namespace caisson::escape {

class Canaries;

// Longer than any step takes on a busy or emulated machine. Only a failing test waits that long.
constexpr int kPatienceMs = 180'000;
constexpr uid_t kOrdinaryId = 65534;

// Options of a sandbox, as for `caisson run`.
struct SandboxRequest {
  std::vector<std::string> command = {};                      // see Host::ProbeCommand
  std::vector<std::string> flags = {};                        // after the defaults, so that they win
  std::vector<std::pair<std::string, std::string>> env = {};  // of the workload
  bool with_probe = true;                                     // show caisson-selftest as /workspace/caisson-selftest
  int standard_input = -1;                                    // a descriptor; -1: /dev/null
  bool open_input = false;                                    // instead, a pipe: Sandbox::process.Write and CloseInput
};

struct ReportedViolation {
  std::string violation_class, reason, confidence;
  std::map<std::string, std::string> evidence;  // numbers as text
};

// Caisson's report: the parts of the result document that rows examine, and its full text.
struct ResultDocument {
  std::string status, failure_class, message;
  int exit_code = -1;
  int signal = 0;  // of the last check
  bool left_processes = false;
  std::string stdout_text, stderr_text;
  std::vector<ReportedViolation> violations;
  std::string cgroup_driver;
  long host_uid = -1;
  std::vector<std::string> degraded;  // walls that the profile accepts losing and that this machine lacks
  int64_t cpu_ms = 0;                 // as counted from outside
  int64_t throttled_ms = 0;           // for which the kernel held it back
  int64_t supervisor_cpu_ms = -1;     // of Caisson itself, on behalf of the workload
  int64_t duration_ms = 0;
  std::string text;

  // True if the result lists a missing wall with this word in its description.
  bool Lacks(const std::string& word) const;
  const ReportedViolation* Find(const std::string& violation_class, const std::string& reason) const;
};
std::optional<ResultDocument> ParseResult(const std::string& text);

// A sandbox that ended, or a control.
struct Outcome {
  Finished process;
  std::optional<ResultDocument> result;  // absent for controls, and when Caisson wrote none
  // The probe's observation; absent if the probe did not report one.
  std::optional<Observation> Saw(const std::string& attempt_id) const;
};

struct Sandbox {
  Process process;
  std::string result_file;
};

class Host {
 public:
  // `caisson` is the program under test, `runtime` the one that runs every sandbox. Creates a directory, which the
  // destructor removes.
  explicit Host(std::string caisson, std::string runtime = "native");
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host();

  const std::string& caisson() const { return caisson_; }
  const std::string& runtime() const { return runtime_; }
  const std::string& selftest() const { return selftest_; }  // a copy of this program that every user may run
  // A new empty directory of the caller's that only this harness uses.
  std::string MakeDirectory();
  std::string WriteFile(const std::string& name, const std::string& text);  // in a new directory; its path

  // The command that makes the attempt: inside, or bare.
  std::vector<std::string> ProbeCommand(const std::string& attempt_id) const;
  std::vector<std::string> ControlCommand(const std::string& attempt_id) const;

  Sandbox Start(const SandboxRequest& request);
  Outcome Finish(Sandbox sandbox, int timeout_ms = kPatienceMs);
  Outcome Run(const SandboxRequest& request, int timeout_ms = kPatienceMs);
  // caisson verify --json with this request document.
  Outcome Verify(const std::string& request, const std::vector<std::string>& flags = {}, int timeout_ms = kPatienceMs);
  // The attempt with nothing in its way, at its place.
  Outcome RunControl(const std::string& attempt_id, const Control& control = {});

  // Everything that descends from `pid`, as the host numbers it.
  static std::vector<pid_t> Descendants(pid_t pid);
  // The ancestor of a running sandbox's processes, given the process that requested it: that process or, with
  // CAISSON_LAUNCHER, the launcher's youngest supervisor. -1 if there is none.
  static pid_t SupervisorOf(pid_t caisson);

  void UseCanaries(const Canaries* canaries) { canaries_ = canaries; }
  const Canaries* canaries() const { return canaries_; }
  const std::string& directory() const { return directory_; }

 private:
  std::vector<std::string> CommandFor(const std::string& attempt_id, const std::string& program) const;

  void AddRuntime(std::vector<std::string>& argv) const;

  std::string caisson_, runtime_, directory_, probe_directory_, selftest_;
  const Canaries* canaries_ = nullptr;
  int counter_ = 0;
};

}  // namespace caisson::escape
