// A container of an engine, started, with the agent at the other end of its attached streams.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/engine/api.h"
#include "runtime/engine/state.h"
#include "runtime/engine/stream_decoder.h"
#include "runtime/witnessed/cgroup_counters.h"
#include "runtime/witnessed/container.h"

namespace caisson::runtime::engine {

class AttachedContainer : public witnessed::Container {
 public:
  // `document` describes the container to the engine.
  static Result<std::unique_ptr<AttachedContainer>> Start(const Api& api, std::unique_ptr<State> state,
                                                          const std::string& document);

  int input() const override { return socket_.get(); }
  int output() const override { return socket_.get(); }
  Result<bool> Read(agent::FrameReader& frames) override;
  Result<size_t> Write(std::string_view bytes) override;
  // The engine removes the group with the container; from then on these are the counters as last seen and the engine's
  // word on whether memory ran out.
  Result<std::optional<sandbox::GroupCounters>> ReadCounters() override;
  bool RestartMemoryPeak() override { return group_ && group_->RestartMemoryPeak(); }
  void Kill() override;

  // The process of the agent as this process sees it, where the engine's containers can be seen from here; else 0.
  pid_t pid() const { return pid_; }
  // The cgroup of the container alone; absent where the engine makes none.
  const std::optional<witnessed::CgroupCounters>& group() const { return group_; }

 private:
  AttachedContainer(const Api& api, std::unique_ptr<State> state) : api_(api), state_(std::move(state)) {}
  Status Create(const std::string& document);
  Status FindProcess();
  Status LearnEnd();
  Status TakeBytes(std::string_view bytes, agent::FrameReader& frames);

  const Api api_;
  std::unique_ptr<State> state_;  // removes the container
  std::string id_;
  UniqueFd socket_;
  std::string first_;  // bytes of the stream that came with the answer to the attachment
  StreamDecoder decoder_;
  pid_t pid_ = 0;
  std::optional<witnessed::CgroupCounters> group_;
  sandbox::GroupCounters last_;
  bool ended_ = false;
};

}  // namespace caisson::runtime::engine
