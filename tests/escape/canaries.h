// Canaries: objects of the host that an escape would change, independent of what the program and Caisson report.
//
// Armed after the controls of a row, which are free to touch them, and checked when its sandboxes have ended. Other
// people use the machine, so a canary examines only objects that this harness could have changed, or that ordinary use
// does not change. Objects that end a moment later than their program are waited for, with a bound.
//
// Processes: the harness is a child subreaper, so whatever descends from it and outlives its parent becomes its child.
// When every sandbox has ended and the harness still has children, something was left; a list of processes or user ids
// could not tell, because other sandboxes run on the machine. (A process in a sandbox hangs on the sandbox's PID 1 and
// that on the supervisor: there is no way out of the line of descent.)
#pragma once

#include <sys/stat.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace caisson::escape {

class Canaries {
 public:
  // `directory` is the harness's own and holds the canary file; `programs` are files whose bytes must stay as they are.
  Canaries(const std::string& directory, const std::vector<std::string>& programs);
  Canaries(const Canaries&) = delete;
  Canaries& operator=(const Canaries&) = delete;

  void Arm();
  // The changes since then, one sentence each. Waits at most `patience_ms` for the transient ones.
  std::vector<std::string> Check(int patience_ms = 3000);

  bool reading_shows() const { return reading_shows_; }
  const std::string& file() const { return file_; }
  const std::string& secret() const { return secret_; }
  int port() const { return port_; }
  const std::string& abstract_name() const { return abstract_name_; }  // without the leading NUL
  // For the environment of controls and sandboxes; see Canary() in probe.h.
  std::vector<std::pair<std::string, std::string>> Environment(bool with_secret) const;

 private:
  using GroupList = std::map<std::string, ino_t>;

  std::vector<std::string> Transient() const;
  void CheckFile(std::vector<std::string>* faults) const;

  std::string file_, secret_, abstract_name_;
  int port_ = 0;
  UniqueFd tcp_, udp_, unix_;
  std::map<std::string, std::string> programs_;  // path -> bytes
  std::map<std::string, std::string> settings_;  // of /proc/sys -> value
  struct stat armed_ {};
  bool reading_shows_ = false;  // this file system records access times
  std::string mounts_;
  std::set<std::string> ipc_;
  GroupList groups_;
  size_t descriptors_ = 0;
};

}  // namespace caisson::escape
