// PID 1 of a sandbox as its supervisor sees it: cloned into all the namespaces, given its ids, its cgroups and orders.
//
// It is made either for a Spec, or ahead of one (SetupContext::ahead): then it does what no request decides and waits.
// Its end is the end of everything inside, and the destructor sees to it.
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

struct Berth;
class LimitGroup;

// Why this machine may refuse a user namespace, and the setting that changes it; empty when it does not say.
std::string UserNamespaceAdvice();

class FirstProcess {
 public:
  FirstProcess() = default;
  // `context` lives on in the child; here it is of no more use. Its control socket is made here.
  static Result<FirstProcess> Clone(SetupContext& context, const Berth& berth);
  ~FirstProcess() { Kill(); }
  FirstProcess(FirstProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)), control_(std::move(other.control_)) {}
  FirstProcess& operator=(FirstProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(pidfd_, other.pidfd_);
    std::swap(control_, other.control_);
    return *this;
  }

  Status WriteIdMaps(const Berth& berth) const;
  Status SendCgroups(const LimitGroup* group) const;
  // Waits for the answer that it is ready, or ready for a Spec; an error when a step failed.
  Result<Report> AwaitReport() const;
  // Kills everything inside and waits until it is gone.
  void Kill();

  bool lives() const { return pid_ >= 0; }
  int pidfd() const { return pidfd_.get(); }
  int control() const { return control_.get(); }

 private:
  pid_t pid_ = -1;  // its number outside
  UniqueFd pidfd_, control_;
};

}  // namespace caisson::sandbox
