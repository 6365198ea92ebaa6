#include "runtime/witnessed/run.h"

#include <algorithm>
#include <utility>

#include "runtime/witnessed/conversation.h"
#include "runtime/witnessed/execution.h"
#include "sandbox/collector.h"
#include "sandbox/command_order.h"

namespace caisson::runtime::witnessed {

namespace {

using agent::Kind;

constexpr int64_t kCollectMs = 60'000;

sandbox::FileKind LowerKind(policy::FileKind kind) {
  switch (kind) {
    case policy::FileKind::kRegular:
      return sandbox::FileKind::kRegular;
    case policy::FileKind::kSymlink:
      return sandbox::FileKind::kSymlink;
    case policy::FileKind::kDirectory:
      return sandbox::FileKind::kDirectory;
  }
  return sandbox::FileKind::kRegular;
}

class WitnessedRun : public Run {
 public:
  WitnessedRun(std::unique_ptr<Container> container, LoweredPlan plan, TakeViolations more)
      : agent_(std::in_place, std::move(container)), plan_(std::move(plan)), more_(std::move(more)) {}

  Status Begin(const DescribeReady& describe) {
    const int64_t start_ms = agent_->container().start_ms();
    CAISSON_TRY(const agent::Frame hello, agent_->Await(Kind::kHello, start_ms));
    CAISSON_TRY(const int64_t version, agent::DecodeNumber(hello.body));
    if (version != agent::kProtocolVersion)
      return Error::Unsupported("caisson-agent speaks another version of the protocol; install the one of this build");
    CAISSON_TRY_VOID(agent_->Send(Kind::kPlan, agent::Encode(plan_.agent)));
    for (const policy::PlannedFile& file : plan_.files) CAISSON_TRY_VOID(SendFile(file));
    plan_.files.clear();
    CAISSON_TRY_VOID(agent_->Send(Kind::kBegin, std::string()));
    CAISSON_TRY(const agent::Frame frame, agent_->Await(Kind::kReady, start_ms));
    CAISSON_TRY(const agent::Ready ready, agent::DecodeReady(frame.body));
    CAISSON_TRY(report_, describe(ready));
    return {};
  }

  const IsolationReport& isolation() const override { return report_; }

  Result<CommandOutcome> Execute(const Command& command, const CommandIo& io, const ExecuteOptions& options) override {
    if (!agent_) return Error::Unsupported("the run is closed");
    if (ended_) return Error::Unsupported("the run has already ended");
    if (command.argv.empty() || command.argv[0].empty()) return Error::Invalid("command: the program is not named");
    const sandbox::Command lowered = Lower(command, plan_.environment);
    if (!sandbox::FitsOrder(lowered)) {
      CommandOutcome outcome;
      outcome.ending = Ending::kNotExecutable;
      outcome.exec_errno = E2BIG;
      return outcome;
    }
    Result<Executed> executed = ExecuteWitnessed(*agent_, plan_.agent.spec, lowered, io, options, more_);
    ended_ = options.last || !executed || executed->run_ended;
    if (!executed) return std::move(executed).error();
    kept_ = std::move(executed->kept);
    lost_ = executed->agent_lost;
    return std::move(executed->outcome);
  }

  Result<Collection> Collect(const std::vector<std::string>& globs) override {
    if (!agent_) return Error::Unsupported("the run is closed");
    sandbox::Collected collected;
    if (kept_) {
      collected = *kept_;
    } else if (lost_) {
      // The files were in the container's memory, and that is gone.
      Collection nothing;
      for (const std::string& glob : globs)
        nothing.skipped.push_back(glob + ": the sandbox ended before its files were read");
      return nothing;
    } else {
      CAISSON_TRY_VOID(agent_->Send(Kind::kCollect, agent::Encode(globs)));
      CAISSON_TRY(const agent::Frame frame, agent_->Await(Kind::kCollected, kCollectMs));
      CAISSON_TRY(collected, agent::DecodeCollected(frame.body));
    }
    Collection collection;
    for (sandbox::CollectedFile& file : collected.files) {
      const bool wanted = !kept_ || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
        return sandbox::MatchesGlob(file.path, glob);
      });
      if (wanted) collection.files.push_back({std::move(file.path), std::move(file.bytes)});
    }
    collection.skipped = std::move(collected.skipped);
    return collection;
  }

  void Close() override { agent_.reset(); }

 private:
  Status SendFile(const policy::PlannedFile& file) {
    agent::FilePiece piece;
    piece.path = file.path;
    piece.kind = LowerKind(file.kind);
    piece.mode = file.mode;
    for (size_t at = 0; at == 0 || at < file.bytes.size(); at += agent::kPieceBytes) {
      piece.bytes = file.bytes.substr(at, agent::kPieceBytes);
      piece.continues = at > 0;
      CAISSON_TRY_VOID(agent_->Send(Kind::kFile, agent::Encode(piece)));
    }
    return {};
  }

  std::optional<Conversation> agent_;
  LoweredPlan plan_;
  TakeViolations more_;
  IsolationReport report_;
  bool ended_ = false;
  std::optional<sandbox::Collected> kept_;  // read before the container was ended
  bool lost_ = false;                       // the agent, and with it everything inside
};

}  // namespace

Result<std::unique_ptr<Run>> BeginRun(std::unique_ptr<Container> container, LoweredPlan plan,
                                      const DescribeReady& describe, TakeViolations more) {
  auto run = std::make_unique<WitnessedRun>(std::move(container), std::move(plan), std::move(more));
  CAISSON_TRY_VOID(run->Begin(describe));
  return std::unique_ptr<Run>(std::move(run));
}

}  // namespace caisson::runtime::witnessed
