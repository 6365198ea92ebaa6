// How a caller reaches a command while it runs: passes it a signal, or ends it.
//
// A runtime waits for a StopToken beside everything else it waits for. StopSource is the token for callers that decide
// in another thread; a program that is told by a signalfd or a connection derives a token of its own from it.
#pragma once

#include <optional>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson {

struct StopRequest {
  int signal = 0;  // to be passed on; 0: end the command now
};

class StopToken {
 public:
  virtual ~StopToken() = default;
  // Polls readable while there is something to take.
  virtual int fd() const = 0;
  // Does not block; absent when there is nothing after all. A token whose other side is gone asks for the end.
  virtual std::optional<StopRequest> Take() const = 0;
};

// Signal and Stop may be called from any thread and any number of times, also before and after the command. A stop
// stays: every command that is given the token later ends at once too.
class StopSource : public StopToken {
 public:
  static Result<StopSource> Make();
  StopSource(StopSource&&) = default;
  StopSource& operator=(StopSource&&) = default;

  void Signal(int signal) const;
  void Stop() const;

  int fd() const override { return ours_.get(); }
  std::optional<StopRequest> Take() const override;

 private:
  StopSource(UniqueFd ours, UniqueFd theirs) : ours_(std::move(ours)), theirs_(std::move(theirs)) {}

  UniqueFd ours_, theirs_;  // where requests come out, and where they go in
};

}  // namespace caisson
