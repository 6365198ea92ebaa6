// Judges the system calls that gVisor's kernel reports. It is to a gVisor sandbox what sandbox/observer.h is to a
// native one, with the same filter, the same rules for paths and the same classes. The difference: the kernel inside
// has answered the call already, and of most calls only the registers are known. So
//   - a call that the filter forbids is a violation whatever gVisor answered; one that gVisor granted must end the
//   command
//     (evidence "answer": "killed"), because no wall refused it;
//   - a write is a violation when gVisor refused it and its path, where known, is not writable. For calls whose path is
//     not known the error decides; EROFS and EACCES do not occur in writable places that the workload has not closed
//     itself;
//   - connect is judged by its address, a send by the error of a missing route.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/violation.h"
#include "runtime/oci/trace_event.h"
#include "sandbox/seccomp_program.h"
#include "sandbox/spec.h"
#include "sandbox/write_rules.h"

namespace caisson::runtime::oci {

class TraceJudge {
 public:
  struct Options : sandbox::WriteRules {
    int64_t scratch_bytes = 0;
    std::vector<sandbox::Probe> probes;
    // Whether a path below a writable one leads through a symbolic link, or may do so. Empty: none does.
    std::function<bool(const std::string& path)> leads_through_link;
  };

  // `extended` is the filter when the profile changes it; otherwise `program`, which must outlive the judge.
  TraceJudge(const sandbox::SeccompProgram& program, std::unique_ptr<sandbox::ExtendedProgram> extended,
             Options options);

  // The numbers of the calls that must be reported with their registers.
  std::vector<int32_t> RawCalls() const;

  // The caller fills in the time.
  std::optional<Violation> Judge(const TraceEvent& event) const;

  // The limit of processes refused a new process or thread.
  static bool IsRefusedFork(const TraceEvent& event);

 private:
  std::optional<Violation> JudgeForbidden(const TraceEvent& event, const sandbox::NotifyRule& rule) const;
  std::optional<Violation> JudgeWrite(const TraceEvent& event) const;
  std::optional<Violation> JudgeOpen(const TraceEvent& event) const;
  std::optional<Violation> JudgePathlessWrite(const TraceEvent& event) const;
  std::optional<Violation> JudgePeer(const TraceEvent& event) const;
  bool IsKnownWritable(const std::string& path, int error) const;

  std::unique_ptr<sandbox::ExtendedProgram> extended_;
  const sandbox::SeccompProgram& program_;
  Options options_;
};

}  // namespace caisson::runtime::oci
