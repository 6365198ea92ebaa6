#include "runtime/native/native.h"

#include <utility>

#include "runtime/native/lower.h"
#include "sandbox/sandbox.h"

namespace caisson::runtime::native {

namespace {

class NativeRun : public Run {
 public:
  NativeRun(std::unique_ptr<sandbox::Sandbox> sandbox, IsolationReport report)
      : sandbox_(std::move(sandbox)), report_(std::move(report)) {}

  const IsolationReport& isolation() const override { return report_; }

  Result<CommandOutcome> Execute(size_t command, const ExecuteOptions& options) override {
    sandbox::RunOptions lowered;
    lowered.timeout_ms = options.timeout_ms;
    lowered.timeout_name = options.timeout_name;
    lowered.last = options.last;
    lowered.signal_fd = options.signal_fd;
    lowered.signal_grace_ms = options.signal_grace_ms;
    lowered.on_violation = options.on_violation;
    lowered.on_output = options.on_output;
    return sandbox_->Run(static_cast<uint32_t>(command), lowered);
  }

  Result<Collection> Collect(const std::vector<std::string>& globs) override {
    sandbox::Collected collected = sandbox_->Collect(globs);
    Collection collection;
    for (sandbox::CollectedFile& file : collected.files)
      collection.files.push_back({std::move(file.path), std::move(file.bytes)});
    collection.skipped = std::move(collected.skipped);
    return collection;
  }

 private:
  std::unique_ptr<sandbox::Sandbox> sandbox_;
  IsolationReport report_;
};

class NativeRuntime : public Runtime {
 public:
  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    CAISSON_TRY(LoweredPlan lowered, Lower(std::move(plan)));
    CAISSON_TRY(std::unique_ptr<sandbox::Sandbox> sandbox, sandbox::Sandbox::Create(std::move(lowered.spec)));
    IsolationReport report = Describe(sandbox->isolation(), lowered.given_up);
    return std::unique_ptr<Run>(std::make_unique<NativeRun>(std::move(sandbox), std::move(report)));
  }
};

}  // namespace

std::unique_ptr<Runtime> MakeNativeRuntime() { return std::make_unique<NativeRuntime>(); }

}  // namespace caisson::runtime::native
