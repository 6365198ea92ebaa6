// A live run: one sandbox that stays until it is closed, in which any number of commands run side by side. Sessions are
// live runs. Processes outlive the command that started them; every process ends with the run.
//
// Thread: all calls come from the thread that opened the run. The run never blocks it: descriptor() becomes readable
// when there is something to do, and Turn() does it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/live_command.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/command.h"
#include "runtime/isolation_report.h"

namespace caisson::runtime {

using caisson::InsideFileInfo;
using caisson::LiveCommand;
using caisson::LiveCommandOptions;
using caisson::LiveEvent;
using caisson::LiveUsage;
using caisson::OpenFor;

class LiveRun {
 public:
  virtual ~LiveRun() = default;  // closes
  virtual const IsolationReport& isolation() const = 0;

  virtual Result<LiveCommand> Begin(const Command& command, const LiveCommandOptions& options) = 0;
  // To the command's process group. An ended command is an error.
  virtual Status Signal(uint32_t command, int signal) = 0;
  // Kills the command's processes: its main process, its session and every descendant. kCommandEnded follows.
  virtual Status EndCommand(uint32_t command) = 0;
  virtual Status ResizeTerminal(const LiveCommand& command, uint16_t rows, uint16_t columns) = 0;

  virtual int descriptor() const = 0;
  // How long the caller may wait before it calls Turn although descriptor() is not readable.
  virtual int64_t MsUntilTurn() const = 0;
  virtual std::vector<LiveEvent> Turn() = 0;
  virtual LiveUsage ReadUsage() const = 0;

  // Stops every process inside until Resume; returns when none runs any more, or an error with all of them resumed.
  virtual Status Pause() = 0;
  virtual Status Resume() = 0;

  // Answers a question of a kQuestion event.
  virtual Status AnswerNetwork(const NetworkAnswer&) { return Error::Unsupported("this runtime asks no questions"); }
  // Allows a destination (network/rule.h) besides those of the plan; `label` is how the record names the rule.
  virtual Status AllowNetwork(const std::string&, const std::string&) {
    return Error::Unsupported("this runtime cannot allow further destinations");
  }
  // Leads connections at `listener`, a listening TCP socket outside whose port is `port`, to a port of the sandbox's
  // loopback, until EndForward or the end of the run.
  virtual Status Forward(UniqueFd, uint16_t, uint16_t) {
    return Error::Unsupported("this runtime forwards no ports of a run that stays");
  }
  virtual Status EndForward(uint16_t) { return {}; }

  // Files as the inside user sees them, by absolute path inside, with that user's rights. Links are followed within the
  // sandbox's tree and never out of it. Only regular files and directories can be opened.
  virtual Result<UniqueFd> OpenFile(const std::string& path, OpenFor use, mode_t mode) = 0;
  virtual Result<InsideFileInfo> Stat(const std::string& path) = 0;  // does not follow a link in the last place
  virtual Result<std::vector<InsideFileInfo>> ListDirectory(const std::string& path) = 0;  // sorted by name
  virtual Status MakeDirectories(const std::string& path, mode_t mode) = 0;                // existing ones are no error
  virtual Status MakeLink(const std::string& path, const std::string& target) = 0;         // a symbolic one
  virtual Status Remove(const std::string& path) = 0;  // a file, a link or a whole directory

  // Ends and removes everything, and returns when nothing is left.
  virtual void Close() = 0;
};

}  // namespace caisson::runtime
