#include "runtime/native/live.h"

#include <sys/ioctl.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "sandbox/live_supervision.h"
#include "sandbox/sandbox.h"

namespace caisson::runtime::native {

namespace {

class NativeLiveRun : public LiveRun {
 public:
  NativeLiveRun(std::unique_ptr<sandbox::Sandbox> sandbox, IsolationReport report, Environment environment)
      : sandbox_(std::move(sandbox)), report_(std::move(report)), environment_(std::move(environment)) {
    supervision_.emplace(*sandbox_);
  }

  const IsolationReport& isolation() const override { return report_; }

  Result<LiveCommand> Begin(const Command& command, const LiveCommandOptions& options) override {
    if (!supervision_) return IsClosed();
    return supervision_->Begin(Lower(command, environment_), options);
  }
  Status Signal(uint32_t command, int signal) override {
    return supervision_ ? supervision_->Signal(command, signal) : Status(IsClosed());
  }
  Status EndCommand(uint32_t command) override {
    return supervision_ ? supervision_->EndCommand(command) : Status(IsClosed());
  }
  Status ResizeTerminal(const LiveCommand& command, uint16_t rows, uint16_t columns) override {
    struct winsize size {};
    size.ws_row = rows;
    size.ws_col = columns;
    if (::ioctl(command.output.get(), TIOCSWINSZ, &size) != 0) return Error::System(errno, "resize the terminal");
    return {};
  }

  int descriptor() const override { return supervision_ ? supervision_->fd() : -1; }
  int64_t MsUntilTurn() const override { return supervision_ ? supervision_->MsUntilTurn() : INT32_MAX; }
  std::vector<LiveEvent> Turn() override { return supervision_ ? supervision_->Turn() : std::vector<LiveEvent>(); }
  LiveUsage ReadUsage() const override { return supervision_ ? supervision_->ReadUsage() : LiveUsage(); }

  Status Pause() override { return supervision_ ? supervision_->Pause() : Status(IsClosed()); }
  Status Resume() override { return supervision_ ? supervision_->Resume() : Status(IsClosed()); }

  Status AnswerNetwork(const NetworkAnswer& answer) override {
    return supervision_ ? supervision_->AnswerNetwork(answer) : Status(IsClosed());
  }
  Status AllowNetwork(const std::string& rule, const std::string& label) override {
    return supervision_ ? supervision_->AllowNetwork(rule, label) : Status(IsClosed());
  }
  Status Forward(UniqueFd listener, uint16_t port, uint16_t inside_port) override {
    return supervision_ ? supervision_->Forward(std::move(listener), port, inside_port) : Status(IsClosed());
  }
  Status EndForward(uint16_t port) override {
    return supervision_ ? supervision_->EndForward(port) : Status(IsClosed());
  }

  Result<UniqueFd> OpenFile(const std::string& path, OpenFor use, mode_t mode) override {
    if (!sandbox_) return IsClosed();
    return sandbox_->files().Open(path, use, mode);
  }
  Result<InsideFileInfo> Stat(const std::string& path) override {
    if (!sandbox_) return IsClosed();
    return sandbox_->files().Stat(path);
  }
  Result<std::vector<InsideFileInfo>> ListDirectory(const std::string& path) override {
    if (!sandbox_) return IsClosed();
    return sandbox_->files().List(path);
  }
  Status MakeDirectories(const std::string& path, mode_t mode) override {
    return sandbox_ ? sandbox_->files().MakeDirectories(path, mode) : Status(IsClosed());
  }
  Status MakeLink(const std::string& path, const std::string& target) override {
    return sandbox_ ? sandbox_->files().MakeLink(path, target) : Status(IsClosed());
  }
  Status Remove(const std::string& path) override {
    return sandbox_ ? sandbox_->files().Remove(path) : Status(IsClosed());
  }

  void Close() override {
    supervision_.reset();
    sandbox_.reset();
  }

 private:
  static Error IsClosed() { return Error::Unsupported("the run is closed"); }

  std::unique_ptr<sandbox::Sandbox> sandbox_;
  IsolationReport report_;
  Environment environment_;
  std::optional<sandbox::LiveSupervision> supervision_;  // declared last: destroyed before the sandbox it watches
};

}  // namespace

Result<std::unique_ptr<LiveRun>> OpenLiveRun(LoweredPlan plan) {
  plan.spec.live = true;
  CAISSON_TRY(std::unique_ptr<sandbox::Sandbox> sandbox, sandbox::Sandbox::Create(std::move(plan.spec)));
  IsolationReport report = native::Describe(sandbox->isolation(), plan.given_up);
  return std::unique_ptr<LiveRun>(
      std::make_unique<NativeLiveRun>(std::move(sandbox), std::move(report), std::move(plan.environment)));
}

}  // namespace caisson::runtime::native
