// Reads the filter's notifications: what the workload attempted, for the record.
//
// SECURITY: observation never decides. A forbidden call is answered from its number and registers alone. An observed
// call is always continued, whatever its memory said, because the kernel's own walls (read-only mounts, an empty
// network namespace, Landlock) are what refuse; there is no answer here that a race could turn into a permission.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "base/violation.h"
#include "linux/abi/seccomp.h"
#include "sandbox/inside_paths.h"
#include "sandbox/observed_calls.h"
#include "sandbox/seccomp_program.h"

namespace caisson::sandbox {

class Observer {
 public:
  struct Options {
    std::vector<std::string> writable;            // inside paths below which writing is allowed
    std::vector<std::string> ignored_components;  // a refused write below a component of this name is not counted
    int64_t scratch_bytes = 0;
  };

  Observer(UniqueFd listener, UniqueFd root, const SeccompProgram& program, Options options);

  int fd() const { return listener_.get(); }

  struct Seen {
    std::optional<Violation> violation;
    bool kill = false;  // the call is never to return: end the sandbox
  };
  // Takes one notification and answers it; `before_thread` is called before a thread is made, where that is
  // observed. Times are left for the caller to fill in.
  Seen HandleOne(const std::function<void()>& before_thread);

 private:
  std::optional<Violation> Judge(const struct seccomp_notif& notification, const NotifyRule& rule) const;
  std::optional<Violation> JudgeWrite(const struct seccomp_notif& notification, const PathCall& call) const;
  std::optional<Violation> JudgeBind(const struct seccomp_notif& notification) const;
  std::optional<Violation> JudgeAddress(const struct seccomp_notif& notification, const AddressCall& call) const;
  bool MayBeWritten(const InsidePaths::Resolved& file) const;
  Violation Describe(const struct seccomp_notif& notification, const NotifyRule& rule) const;

  UniqueFd listener_;
  InsidePaths paths_;
  const SeccompProgram& program_;
  Options options_;
};

}  // namespace caisson::sandbox
