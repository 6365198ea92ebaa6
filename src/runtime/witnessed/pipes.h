// A container whose agent has two sockets of this process as its standard streams.
#pragma once

#include <memory>
#include <string_view>

#include "base/unique_fd.h"
#include "runtime/witnessed/container.h"

namespace caisson::runtime::witnessed {

// The agent's ends.
struct AgentPipes {
  UniqueFd input, output;
};

class PipedContainer : public Container {
 public:
  int input() const override { return from_agent_.get(); }
  int output() const override { return to_agent_.get(); }
  Result<bool> Read(agent::FrameReader& frames) override;
  Result<size_t> Write(std::string_view bytes) override;

 protected:
  Result<AgentPipes> MakePipes();
  // One socket for both directions; returns the agent's end.
  Result<UniqueFd> MakeSocket();
  // Tells the agent that it is no longer needed: it ends, and everything inside with it.
  void CloseStreams() {
    to_agent_.Reset();
    from_agent_.Reset();
  }

 private:
  UniqueFd from_agent_, to_agent_;
};

}  // namespace caisson::runtime::witnessed
