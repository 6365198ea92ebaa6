// A child process of the harness: its streams, its end, and a bound on everything. Runs: host.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace caisson::escape {

struct Command {
  std::vector<std::string> argv = {};
  std::vector<std::pair<std::string, std::string>> env = {};  // on top of the harness's own
  std::string directory = {};
  bool new_session = false;                // without a controlling terminal; else only a process group
  int standard_input = -1;                 // a descriptor to use; -1: an own pipe, see Process::Write
  std::function<bool()> before_exec = {};  // in the child; false: it ends with 125
};

struct Finished {
  bool started = false;
  bool timed_out = false;  // the harness killed it
  int exit_code = -1;      // -1 when a signal ended it
  int signal = 0;
  std::string out, err;
};

class Process {
 public:
  static Process Start(const Command& command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills and reaps

  pid_t pid() const { return pid_; }
  bool started() const { return pid_ > 0; }
  bool Write(std::string_view text);
  void CloseInput() { input_.Reset(); }
  // The next line of its standard output without the newline; false at the end of it or when the time is over.
  bool ReadLine(std::string* line, int timeout_ms);
  void Signal(int signal) const;
  // Waits for its end, collecting what it writes; kills its process group when the time is over.
  Finished Finish(int timeout_ms);

 private:
  Process() = default;
  // Waits for output or the end and reads what is there; false when there was nothing in time.
  bool Pump(int timeout_ms);

  pid_t pid_ = -1;
  UniqueFd input_, output_, error_, pidfd_;
  Finished finished_;
  size_t lines_read_ = 0;  // bytes of `out` that ReadLine has given away
};

int64_t NowMs();

}  // namespace caisson::escape
