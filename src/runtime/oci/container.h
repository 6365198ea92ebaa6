// A container that a program of the OCI kind (runc, crun, runsc) made, with caisson-agent as its PID 1.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "runtime/oci/program.h"
#include "runtime/oci/state.h"
#include "runtime/witnessed/cgroup_counters.h"
#include "runtime/witnessed/pipes.h"

namespace caisson::runtime::oci {

class OciContainer : public witnessed::PipedContainer {
 public:
  // `runtime` is for errors.
  OciContainer(std::string runtime, std::unique_ptr<State> state)
      : runtime_(std::move(runtime)), state_(std::move(state)) {}
  ~OciContainer() override;

  // Starts the container from the bundle in the state's directory. `options` are further options of the program.
  Status Create(const std::vector<std::string>& options, const std::vector<PrivateMount>& mounts);

  Result<std::optional<sandbox::GroupCounters>> ReadCounters() override;
  bool RestartMemoryPeak() override { return counters_->RestartMemoryPeak(); }
  void Kill() override;

  // The container's first process outside: the agent, or the kernel that the agent runs on.
  pid_t pid() const { return pid_; }
  bool is_running() const;
  const witnessed::CgroupCounters& group() const { return *counters_; }

 private:
  const std::string runtime_;
  std::unique_ptr<State> state_;
  pid_t pid_ = -1;
  UniqueFd process_;
  std::optional<witnessed::CgroupCounters> counters_;
};

}  // namespace caisson::runtime::oci
