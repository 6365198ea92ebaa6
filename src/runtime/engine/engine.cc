#include "runtime/engine/engine.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "policy/render.h"
#include "runtime/engine/api.h"
#include "runtime/engine/attached_container.h"
#include "runtime/engine/report.h"
#include "runtime/engine/root_image.h"
#include "runtime/engine/state.h"
#include "runtime/witnessed/agent_program.h"
#include "runtime/witnessed/lower.h"
#include "runtime/witnessed/root_files.h"
#include "runtime/witnessed/run.h"
#include "sandbox/slot.h"

namespace caisson::runtime::engine {

namespace {

// SECURITY: without a user namespace the number of the inside user is its number outside. Each container has another,
// so that none shares the kernel's counters per user (watches, pending signals, keys) with another container or with a
// user of the host. They lie among the ids of native sandboxes, where those have no process.
Result<uid_t> ChooseUserId(bool maps_ids) {
  uint32_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return Error::System(errno, "read random bytes");
  if (maps_ids) return static_cast<uid_t>(2'000 + random % 60'000);  // engines map 65536 ids
  const uid_t slot = (random >> 16) % static_cast<uid_t>(sandbox::Slot::kSlots);
  return sandbox::Slot::kFirstHostId + slot * sandbox::Slot::kIdsPerSlot + 0x8000 + (random & 0x7ffe);
}

// Describes one run to the engine.
class Description {
 public:
  Description(policy::RunPlan& plan, State& state, const EngineInfo& info, uid_t user_id)
      : plan_(plan), state_(state), profile_(plan.profile) {
    profile_.limits = plan.limits;
    container_.user_id = int64_t{user_id};
    terms_.profile = plan.profile;
    terms_.limits = plan.limits;
    terms_.user_id = user_id;
    terms_.maps_ids = info.maps_ids;
  }

  Result<std::string> Write(const std::string& image) {
    container_.image = image;
    container_.labels = {{kOwnerLabel, state_.owner()}};
    container_.masked = witnessed::FindOtherLoaders();
    PlanWorkspace();
    for (const auto* paths : {&profile_.system_paths, &profile_.etc_paths}) {
      for (const std::string& path : *paths) CAISSON_TRY_VOID(AddSystemPath(path));
    }
    CAISSON_TRY(const std::vector<witnessed::RootFile> files, witnessed::MakeRootFiles(plan_, terms_.user_id));
    for (const witnessed::RootFile& file : files) {
      CAISSON_TRY(const std::string path, state_.AddFile(file.text));
      CAISSON_TRY_VOID(Add(path, file.path, false));
    }
    if (plan_.workspace_mount) CAISSON_TRY_VOID(AddTree(*plan_.workspace_mount));
    for (const policy::PlannedMount& planned : plan_.mounts) CAISSON_TRY_VOID(AddTree(planned));
    return policy::render::DockerContainer(profile_, container_);
  }

  ReportTerms TakeTerms() { return std::move(terms_); }

 private:
  // A workspace of files is a file system of its own. A writable one has a quarter of what scratch may hold besides
  // its files, and the other writable places have the rest.
  void PlanWorkspace() {
    if (plan_.workspace_mount) return;
    container_.workspace_bytes = int64_t{1} << 20;
    for (const policy::PlannedFile& file : plan_.workspace_files)
      container_.workspace_bytes += static_cast<int64_t>(file.bytes.size()) + 4096;
    if (plan_.workspace_access == policy::Access::kReadOnly) {
      terms_.seal_workspace = true;
      return;
    }
    container_.workspace_bytes += plan_.limits.scratch_bytes / 4;
    profile_.limits.scratch_bytes -= plan_.limits.scratch_bytes / 4;
  }

  Status Add(const std::string& source, const std::string& target, bool writable) {
    CAISSON_TRY_VOID(Remember(source, target, writable));
    container_.mounts.push_back({source, target, writable});
    return {};
  }

  Status AddTree(const policy::PlannedMount& planned) {
    CAISSON_TRY(const std::string place, state_.ShowTree(planned, plan_.limits, terms_.user_id));
    return Add(place, planned.target, planned.access != policy::Access::kReadOnly);
  }

  // Links of the host's root are links of the image.
  Status AddSystemPath(const std::string& path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || S_ISLNK(info.st_mode)) return {};
    container_.present.push_back(path);
    return Remember(path, path, false);
  }

  Status Remember(const std::string& source, const std::string& target, bool writable) {
    struct stat info {};
    if (::stat(source.c_str(), &info) != 0) return Error::System(errno, "look at " + source);
    terms_.shown.push_back({source, target, writable, info.st_dev, info.st_ino});
    return {};
  }

  policy::RunPlan& plan_;
  State& state_;
  policy::Profile profile_;
  policy::EngineContainer container_;
  ReportTerms terms_;
};

class EngineRuntime : public Runtime {
 public:
  explicit EngineRuntime(std::string agent) : agent_(std::move(agent)) {}

  policy::RuntimeDescription Describe() const override { return DescribeEngine(); }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    CAISSON_TRY(const std::string socket, FindSocket());
    const Api api(socket);
    CAISSON_TRY(const EngineInfo info, api.ReadInfo());
    CAISSON_TRY(const std::string agent, witnessed::FindAgent(agent_, "container"));
    CAISSON_TRY(const RootImage image, MakeRootImage(agent, plan.profile));
    CAISSON_TRY_VOID(Provide(api, image));
    CAISSON_TRY(const uid_t user_id, ChooseUserId(info.maps_ids));
    CAISSON_TRY(std::unique_ptr<State> state, State::Make(api));
    Description description(plan, *state, info, user_id);
    CAISSON_TRY(const std::string document, description.Write(image.id));
    CAISSON_TRY(witnessed::LoweredPlan lowered, witnessed::Lower(plan, Describe()));
    CAISSON_TRY(std::unique_ptr<AttachedContainer> container,
                AttachedContainer::Start(api, std::move(state), document));
    ReportTerms terms = description.TakeTerms();
    terms.given_up = lowered.given_up;
    // An engine without cgroups takes the limits, says nothing, and enforces none of them.
    if (!container->group()) {
      if (!terms.profile.Allows("cgroup"))
        return Error::Unsupported("wall cgroup: the engine at " + socket +
                                  " puts the container into no cgroup of its own, so its limits would not hold; use "
                                  "root's engine, or a profile whose allow_degraded lists cgroup");
      lowered.agent.watch_limits = lowered.agent.limit_processes_by_rlimit = true;
    }
    const AttachedContainer& seen = *container;
    return witnessed::BeginRun(std::move(container), std::move(lowered),
                               [&](const agent::Ready& ready) { return engine::Describe(seen, terms, ready); });
  }

 private:
  // The image is loaded once and found by its digest from then on.
  static Status Provide(const Api& api, const RootImage& image) {
    CAISSON_TRY(const bool present, api.HasImage(image.id));
    if (present) return {};
    CAISSON_TRY_VOID(api.LoadImage(image.archive));
    CAISSON_TRY(const bool loaded, api.HasImage(image.id));
    if (!loaded)
      return Error::Unsupported("runtime container: the engine loaded another image than the one it was sent");
    return {};
  }

  const std::string agent_;
};

}  // namespace

policy::RuntimeDescription DescribeEngine() {
  using policy::Ability;
  policy::RuntimeDescription engine;
  engine.name = "container";
  engine.strength = policy::Strength::kContainer;
  engine.abilities = {Ability::kObservesWrites, Ability::kObservesNetwork, Ability::kObservesSystemCalls};
  engine.limits.fill(policy::LimitSupport::kEnforced);
  // A profile that gives up the user namespace is not what an engine without one is for: the report declares that loss.
  engine.needed_walls = {"namespaces.user",    "namespaces.pid",      "namespaces.mount",
                         "namespaces.network", "namespaces.ipc",      "namespaces.uts",
                         "capabilities",       "seccomp.filter.none", "no_new_privileges"};
  return engine;
}

std::unique_ptr<Runtime> MakeEngineRuntime(std::string agent) {
  return std::make_unique<EngineRuntime>(std::move(agent));
}

}  // namespace caisson::runtime::engine
