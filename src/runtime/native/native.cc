#include "runtime/native/native.h"

#include <utility>

#include "runtime/native/description.h"
#include "runtime/native/live.h"
#include "runtime/native/lower.h"
#include "sandbox/sandbox.h"

namespace caisson::runtime::native {

namespace {

class NativeRun : public Run {
 public:
  NativeRun(std::unique_ptr<sandbox::Sandbox> sandbox, IsolationReport report, Environment environment)
      : sandbox_(std::move(sandbox)), report_(std::move(report)), environment_(std::move(environment)) {}

  const IsolationReport& isolation() const override { return report_; }

  Result<CommandOutcome> Execute(const Command& command, const CommandIo& io, const ExecuteOptions& options) override {
    if (!sandbox_) return IsClosed();
    sandbox::RunOptions lowered;
    lowered.timeout_ms = options.timeout_ms;
    lowered.timeout_name = options.timeout_name;
    lowered.last = options.last;
    lowered.stop = options.stop;
    lowered.signal_grace_ms = options.signal_grace_ms;
    lowered.on_violation = options.on_violation;
    lowered.asker = options.asker;
    return sandbox_->Run(Lower(command, environment_), io, lowered);
  }

  Result<Collection> Collect(const std::vector<std::string>& globs) override {
    if (!sandbox_) return IsClosed();
    sandbox::Collected collected = sandbox_->Collect(globs);
    Collection collection;
    for (sandbox::CollectedFile& file : collected.files)
      collection.files.push_back({std::move(file.path), std::move(file.bytes)});
    collection.skipped = std::move(collected.skipped);
    return collection;
  }

  void Close() override { sandbox_.reset(); }

 private:
  static Error IsClosed() { return Error::Unsupported("the run is closed"); }

  std::unique_ptr<sandbox::Sandbox> sandbox_;
  IsolationReport report_;
  Environment environment_;
};

class NativeRuntime : public Runtime {
 public:
  policy::RuntimeDescription Describe() const override { return DescribeNative(); }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    CAISSON_TRY(LoweredPlan lowered, Lower(std::move(plan)));
    CAISSON_TRY(std::unique_ptr<sandbox::Sandbox> sandbox, sandbox::Sandbox::Create(std::move(lowered.spec)));
    IsolationReport report = native::Describe(sandbox->isolation(), lowered.given_up);
    return std::unique_ptr<Run>(
        std::make_unique<NativeRun>(std::move(sandbox), std::move(report), std::move(lowered.environment)));
  }

  Result<std::unique_ptr<LiveRun>> Open(policy::RunPlan plan) override {
    CAISSON_TRY(LoweredPlan lowered, Lower(std::move(plan)));
    return OpenLiveRun(std::move(lowered));
  }
};

}  // namespace

std::unique_ptr<Runtime> MakeNativeRuntime() { return std::make_unique<NativeRuntime>(); }

}  // namespace caisson::runtime::native
