// What stands around a container of an engine, read from outside where that is possible, before the first command.
#pragma once

#include <string>
#include <vector>

#include "agent/protocol.h"
#include "base/result.h"
#include "policy/plan.h"
#include "runtime/engine/attached_container.h"
#include "runtime/isolation_report.h"

namespace caisson::runtime::engine {

struct ShownPath {
  std::string source;  // on the host
  std::string target;
  bool writable = false;
  dev_t device = 0;  // of the source, when the container was described to the engine
  ino_t inode = 0;
};

struct ReportTerms {
  policy::Profile profile;
  policy::Limits limits;
  std::vector<std::string> given_up;
  std::vector<ShownPath> shown;
  uid_t user_id = 0;
  bool maps_ids = false;
  bool seal_workspace = false;
};

// SECURITY: what was asked for is not what an engine did until the kernel says so. A wall that was asked for and does
// not stand is an error.
Result<IsolationReport> Describe(const AttachedContainer& container, const ReportTerms& terms,
                                 const agent::Ready& ready);

}  // namespace caisson::runtime::engine
