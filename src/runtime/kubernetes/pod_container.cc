#include "runtime/kubernetes/pod_container.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/protocol.h"
#include "base/clock.h"
#include "base/percent.h"

namespace caisson::runtime::kubernetes {

namespace {

using nlohmann::json;

constexpr int kCreateAttempts = 3;
constexpr int64_t kLookMs = 500;
constexpr int64_t kEndMs = 2'000;      // from the end of its input to the agent's end
constexpr int64_t kStatusMs = 20'000;  // from the container's end to the node's word about it

int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

}  // namespace

Result<std::unique_ptr<PodContainer>> PodContainer::Start(std::shared_ptr<const Api> api, const std::string& name,
                                                          const std::string& job, int64_t start_seconds) {
  std::unique_ptr<PodContainer> container(new PodContainer(std::move(api), name));
  CAISSON_TRY_VOID(container->Create(job));
  CAISSON_TRY_VOID(container->AwaitStart(start_seconds));
  CAISSON_TRY_VOID(container->Attach());
  return container;
}

PodContainer::~PodContainer() {
  PodContainer::Kill();
  stream_.reset();
  // Whatever keeps the Job from being deleted now, its deadline and its time to live remove it later.
  if (created_) (void)api_->Request("DELETE", api_->JobsPath() + "/" + name_ + "?propagationPolicy=Background");
  watch_.reset();
}

Status PodContainer::Create(const std::string& job) {
  const std::string path = api_->JobsPath() + "?fieldValidation=Strict";
  Result<Reply> reply = Error::Exhausted("");
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    created_ = true;  // even a request without an answer may have created it
    reply = api_->Send("POST", path, job);
    if (reply && reply->status < 500) break;
  }
  if (!reply) return std::move(reply).error();
  // The name is this run's own, so a conflict means that an earlier attempt has arrived.
  if (reply->status == 409) return {};
  if (reply->status != 201) {
    created_ = false;
    return ErrorOf("POST", path, *reply);
  }
  for (const std::string& warning : reply->warnings) warnings_ += (warnings_.empty() ? "" : "; ") + warning;
  return {};
}

// Why the job controller creates no pod: Pod Security, a quota. Only events tell.
std::optional<Error> PodContainer::FindRefusal() const {
  const Result<Reply> reply = api_->Request(
      "GET", api_->EventsPath() + "?limit=20&fieldSelector=" + PercentEncode("involvedObject.name=" + name_));
  if (!reply) return std::nullopt;
  const json events = json::parse(reply->body, nullptr, false);
  if (!events.is_object() || !events.contains("items") || !events["items"].is_array()) return std::nullopt;
  for (const json& event : events["items"]) {
    if (TextAt(event, {"reason"}) != "FailedCreate") continue;
    return Error::Unsupported("runtime kubernetes: the cluster refuses the pod: " + Shown(TextAt(event, {"message"})) +
                              "; the namespace's Pod Security, quotas or admission plugins decide that");
  }
  return std::nullopt;
}

Status PodContainer::AwaitStart(int64_t start_seconds) {
  watch_ = std::make_unique<PodWatch>(api_, name_);
  const int64_t until = NowMs() + start_seconds * 1000;
  const auto decided = [](const PodState& pod) { return pod.is_running() || FindStartFailure(pod).has_value(); };
  std::optional<PodState> pod;
  while (NowMs() < until) {
    CAISSON_TRY(pod, watch_->Await(decided, std::min(kLookMs, until - NowMs())));
    if (!pod) {
      if (std::optional<Error> refusal = FindRefusal()) return *std::move(refusal);
      continue;
    }
    if (pod->is_running()) {
      pod_ = *std::move(pod);
      return {};
    }
    if (std::optional<Error> failure = FindStartFailure(*pod)) return *std::move(failure);
  }
  const std::string within = " within " + std::to_string(start_seconds) + " s (setting start_seconds)";
  if (!pod)
    return Error{ErrorKind::kSystem, ETIMEDOUT,
                 "runtime kubernetes: the job controller created no pod" + within +
                     (warnings_.empty() ? "" : ": " + Shown(warnings_))};
  if (!pod->unschedulable.empty())
    return Error{ErrorKind::kSystem, ETIMEDOUT,
                 "runtime kubernetes: no node takes the pod" + within + ": " + Shown(pod->unschedulable)};
  return Error{ErrorKind::kSystem, ETIMEDOUT,
               "runtime kubernetes: the pod did not start" + within + ": " +
                   Shown(pod->container_reason.empty() ? pod->phase : pod->container_reason)};
}

Status PodContainer::Attach() {
  CAISSON_TRY(witnessed::AgentPipes pipes, MakePipes());
  const std::string path =
      api_->PodsPath() + "/" + pod_.name + "/attach?container=workload&stdin=true&stdout=true&stderr=false";
  CAISSON_TRY(stream_, AttachedStream::Open(api_->dialer(), path, std::move(pipes.input), std::move(pipes.output)));
  CAISSON_TRY_VOID(Write(agent::Pack(agent::Kind::kGreet, "")));
  return {};
}

void PodContainer::Kill() {
  CloseStreams();
  if (stream_) stream_->AwaitEnd(kEndMs);
}

Result<witnessed::OuterEnd> PodContainer::ReadEnd() {
  stream_.reset();
  CAISSON_TRY(const std::optional<PodState> pod,
              watch_->Await([](const PodState& state) { return state.has_ended(); }, kStatusMs));
  return JudgeEnd(pod ? *pod : pod_);
}

}  // namespace caisson::runtime::kubernetes
