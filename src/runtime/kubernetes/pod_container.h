// The pod of one run: its Job, its state at the API server and its attached streams.
#pragma once

#include <memory>
#include <string>

#include "runtime/kubernetes/api.h"
#include "runtime/kubernetes/attach.h"
#include "runtime/kubernetes/pod_watch.h"
#include "runtime/witnessed/pipes.h"

namespace caisson::runtime::kubernetes {

class PodContainer : public witnessed::PipedContainer {
 public:
  // Creates the Job and waits until its container runs and is attached. `job` is the object to send; an equal object
  // that an earlier request of this process has created is taken as it is.
  static Result<std::unique_ptr<PodContainer>> Start(std::shared_ptr<const Api> api, const std::string& name,
                                                     const std::string& job, int64_t start_seconds);
  // Ends the agent and deletes the Job, and the pod with it.
  ~PodContainer() override;

  Result<std::optional<sandbox::GroupCounters>> ReadCounters() override {
    return std::optional<sandbox::GroupCounters>();
  }
  void Kill() override;
  Result<witnessed::OuterEnd> ReadEnd() override;

  const PodState& pod() const { return pod_; }  // as it was when it had started

 private:
  PodContainer(std::shared_ptr<const Api> api, std::string name) : api_(std::move(api)), name_(std::move(name)) {}

  Status Create(const std::string& job);
  Status AwaitStart(int64_t start_seconds);
  Status Attach();
  std::optional<Error> FindRefusal() const;

  const std::shared_ptr<const Api> api_;
  const std::string name_;
  bool created_ = false;
  std::string warnings_;  // of the API server about the Job
  std::unique_ptr<PodWatch> watch_;
  std::unique_ptr<AttachedStream> stream_;
  PodState pod_;
};

}  // namespace caisson::runtime::kubernetes
