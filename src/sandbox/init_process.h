// PID 1 of a sandbox as its supervisor sees it: the supervisor clones it into all the namespaces and gives it its ids,
// its cgroups and its orders.
//
// It is created either for a Spec, or ahead of one (SetupContext::ahead): then it runs the steps that no request
// decides and waits. When it ends, every process inside ends; the destructor kills it.
//
// Runs: supervisor, in one thread: the parent-death signal is tied to the thread that called Clone.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/control.h"
#include "sandbox/setup.h"

namespace caisson::sandbox {

struct HostResources;
class LimitGroup;
struct Spec;

// Explains why this machine may refuse a user namespace and names the setting that changes it; empty when the reason is
// unknown.
std::string UserNamespaceAdvice();

class InitProcess {
 public:
  InitProcess() = default;
  // `context` lives on in the child; the caller has no further use for it. Clone makes its control socket.
  static Result<InitProcess> Clone(SetupContext& context, const HostResources& resources);
  ~InitProcess() { Kill(); }
  InitProcess(InitProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)), control_(std::move(other.control_)) {}
  InitProcess& operator=(InitProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(pidfd_, other.pidfd_);
    std::swap(control_, other.control_);
    return *this;
  }

  Status WriteIdMaps(const HostResources& resources) const;
  Status SendCgroups(const LimitGroup* group) const;
  // Waits for the report that PID 1 is ready, or ready for a Spec. When a step failed, returns an error that names
  // targets from `spec`, which may be null.
  Result<Report> AwaitReport(const Spec* spec) const;
  // Kills all processes inside and waits until they are gone.
  void Kill();

  bool lives() const { return pid_ >= 0; }
  pid_t pid() const { return pid_; }  // its number outside
  int pidfd() const { return pidfd_.get(); }
  int control() const { return control_.get(); }

 private:
  pid_t pid_ = -1;  // its number outside
  UniqueFd pidfd_, control_;
};

}  // namespace caisson::sandbox
