#include "verify/run_driver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "verify/default_checks.h"
#include "verify/digest.h"
#include "verify/verdict.h"

namespace caisson::verify {

using nlohmann::json;

namespace {

VerificationResult EmptyResult(const Request& request) {
  VerificationResult result;
  result.request_id = request.request_id;
  result.attempt = request.attempt;
  result.mode = request.mode;
  return result;
}

void SetError(VerificationResult& result, const Error& error) {
  const bool denied = error.kind == ErrorKind::kDenied;
  result.verdict = denied ? Verdict{VerdictStatus::kRejected, "PolicyRejected", "rejected"}
                          : Verdict{VerdictStatus::kError, "InfrastructureError", "error"};
  result.message = error.message;
  result.error_number = error.errno_value;
}

// SECURITY: the name is the hash of the content, so the workload cannot choose any part of a host path. The directory
// must not be a link: an earlier workload could have planted it and would choose where we write.
Status StoreArtifact(const std::string& directory, const std::string& name, const std::string& bytes) {
  UniqueFd dir(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir && errno == ENOTDIR) return Error::Invalid(directory + ": not a directory; a symbolic link is not followed");
  if (!dir) return Error::System(errno, "open " + directory);
  UniqueFd file(::openat(dir.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) {
    if (errno == EEXIST) return {};
    return Error::System(errno, "store an artifact in " + directory);
  }
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t size = ::write(file.get(), bytes.data() + written, bytes.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error::System(errno, "store an artifact in " + directory);
    written += static_cast<size_t>(size);
  }
  return {};
}

std::string ExplainNotExecutable(const policy::PlannedCommand& command, int error) {
  const std::string& program = command.argv[0];
  if (error == ENOENT)
    return "check " + command.name + ": " + program + " is not in the sandbox, or its interpreter is not";
  if (error == ENOEXEC) return "check " + command.name + ": " + program + " is not a program; a script needs a #! line";
  return "check " + command.name + ": " + program + " cannot be started: " + std::strerror(error);
}

// The error for an outcome of Ending::kLost: an infrastructure failure that is worth another attempt.
Error LostError() {
  return {
      ErrorKind::kSystem, ECONNRESET,
      "the launcher was lost, or the machine it stands for: what became of the command is not known; it may be tried "
      "again"};
}

}  // namespace

KeepArtifact KeepIn(std::string directory) {
  return
      [directory = std::move(directory)](const std::string& sha256, const std::string& bytes) -> Result<std::string> {
        if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) return Error::System(errno, "make " + directory);
        CAISSON_TRY_VOID(StoreArtifact(directory, sha256, bytes));
        return directory + "/" + sha256;
      };
}

VerificationResult RefusalResult(const Request& request, const Error& error) {
  VerificationResult result = EmptyResult(request);
  SetError(result, error);
  return result;
}

int64_t RunDriver::ElapsedMs() const { return (MonotonicNanos() - start_ns_) / 1'000'000; }

void RunDriver::Tell(const char* event, json members) const {
  if (sinks_.events != nullptr && sinks_.events->enabled()) sinks_.events->Write(event, std::move(members));
}

Result<VerificationResult> RunDriver::Refuse(const Error& error, const policy::Decision& decision) const {
  CAISSON_TRY_VOID(sinks_.audit->Rejected(request_, error));
  VerificationResult result = RefusalResult(request_, error);
  result.decision = policy::ToJson(decision);
  if (error.kind == ErrorKind::kDenied)
    Tell("rejected", {{"reason", error.message}, {"decision", result.decision}});
  else
    Tell("sandbox_failed", {{"error", error.message}});
  return result;
}

Status RunDriver::End(const VerificationResult& result, const std::string& digest, json members) const {
  CAISSON_TRY_VOID(sinks_.audit->Ended(result, digest));
  Tell("result", std::move(members));
  return {};
}

Result<VerificationResult> RunDriver::Run(Admitted admitted) {
  // SECURITY: the admission has no effect before its record is on the disk.
  CAISSON_TRY_VOID(sinks_.audit->Admitted(request_, admitted));
  start_ns_ = MonotonicNanos();
  result_ = EmptyResult(request_);
  result_.skipped_checks = std::move(admitted.skipped);
  result_.source_digest = admitted.source_digest;
  result_.policy_digest = admitted.policy_digest;
  if (admitted.plan.image) result_.image = ImageIdentity::Of(*admitted.plan.image);
  if (options_.described) {
    result_.policy = DescribePolicy(admitted.plan);
    result_.decision = policy::ToJson(admitted.plan.decision);
    json members = sinks_.admitted_members;
    members.update({{"policy_digest", result_.policy_digest},
                    {"source_digest", result_.source_digest},
                    {"decision", result_.decision}});
    if (result_.image) members["image"] = result_.image->ToJson();
    Tell("admitted", std::move(members));
  }
  // The runtime takes the plan; the members that are needed afterwards stay here.
  policy::RunPlan plan = std::move(admitted.plan);
  admitted.plan.commands = plan.commands;
  admitted.plan.limits = plan.limits;
  admitted.plan.profile.on_violation = plan.profile.on_violation;
  runtime::Runtime& runtime = Chosen(runtimes_, plan.decision);
  const Status opened = policy::OpenSecrets(plan.credentials);
  Result<std::unique_ptr<runtime::Run>> run =
      opened ? runtime.Start(std::move(plan)) : Result<std::unique_ptr<runtime::Run>>(opened.error());
  if (!run) {
    Tell("sandbox_failed", {{"error", run.error().message}});
    SetError(result_, run.error());
  } else {
    result_.isolation = (*run)->isolation();
    if (sinks_.on_started) sinks_.on_started(*result_.isolation);
    if (options_.described) {
      Tell("sandbox_started", {{"isolation", ToJson(*result_.isolation)},
                               {"policy", result_.policy},
                               {"policy_digest", result_.policy_digest}});
    }
    RunChecks(admitted, **run);
    if (Status collected = CollectArtifacts(**run); !collected) SetError(result_, collected.error());
    run->reset();
    Tell("sandbox_stopped", json::object());
    if (result_.verdict.status == VerdictStatus::kCancelled) Tell("cancelled", json::object());
  }
  result_.duration_ms = ElapsedMs();
  return std::move(result_);
}

Status RunDriver::CollectArtifacts(runtime::Run& run) {
  if (request_.artifacts.empty()) return {};
  CAISSON_TRY(runtime::Collection collection, run.Collect(request_.artifacts));
  for (const runtime::CollectedFile& file : collection.files) {
    Artifact artifact{file.path, file.bytes.size(), Sha256Hex(file.bytes), ""};
    artifact.ref = "sha256:" + artifact.sha256;
    if (sinks_.keep_artifact) {
      CAISSON_TRY(artifact.ref, sinks_.keep_artifact(artifact.sha256, file.bytes));
    }
    Tell("artifact_collected", {{"path", artifact.path}, {"bytes", artifact.bytes}, {"sha256", artifact.sha256}});
    result_.artifacts.push_back(std::move(artifact));
  }
  result_.skipped_artifacts = std::move(collection.skipped);
  return {};
}

void RunDriver::RunChecks(const Admitted& admitted, runtime::Run& run) {
  const std::vector<policy::PlannedCommand>& commands = admitted.plan.commands;
  size_t index = 0;
  for (; index < commands.size() && result_.verdict.status == VerdictStatus::kPass; ++index) {
    if (!RunCheck(admitted, index, run)) break;
  }
  for (; index < commands.size(); ++index)
    result_.skipped_checks.push_back({commands[index].name, commands[index].tier, "an earlier check did not pass"});
}

bool RunDriver::RunCheck(const Admitted& admitted, size_t index, runtime::Run& run) {
  const std::vector<policy::PlannedCommand>& commands = admitted.plan.commands;
  const policy::PlannedCommand& command = commands[index];
  if (sinks_.on_check_started) sinks_.on_check_started(command, index, commands.size());
  Tell("check_started", {{"check", command.name}, {"tier", command.tier}});
  runtime::ExecuteOptions execute;
  const int64_t left_ms =
      options_.has_budget ? std::max<int64_t>(admitted.plan.limits.budget_ms - ElapsedMs(), 1) : command.timeout_ms;
  execute.timeout_ms = std::min(command.timeout_ms, left_ms);
  execute.timeout_name = left_ms < command.timeout_ms ? "budget_ms" : "command_timeout_ms";
  execute.last = index + 1 == commands.size();
  execute.stop = options_.stop;
  execute.signal_grace_ms = options_.signal_grace_ms;
  execute.asker = options_.asker;
  execute.on_violation = [&](const Violation& violation) {
    Tell("violation", {{"check", command.name}, {"violation", ToJson(violation)}});
  };
  const CommandIo io =
      options_.choose_io ? options_.choose_io(command) : CommandIo::Capture(command.stdin_bytes, sinks_.on_output);
  Result<CommandOutcome> outcome = run.Execute(runtime::Command::Of(command), io, execute);
  if (outcome && outcome->ending == Ending::kLost) outcome = LostError();
  if (!outcome) {
    SetError(result_, outcome.error());
    return false;
  }
  CheckRecord record{command.name, command.tier, command.argv, *std::move(outcome)};
  if (sinks_.on_check_finished) sinks_.on_check_finished(record);
  if (record.outcome.ending == Ending::kNotExecutable) {
    const int error = record.outcome.exec_errno;
    record.outcome.exit_code = error == ENOENT || error == ENOTDIR ? 127 : 126;
    result_.message = ExplainNotExecutable(command, error);
  }
  result_.verdict = Judge(record.outcome, admitted.plan.profile.on_violation);
  // Our own checks chose the interpreter: if it is missing, the machine is at fault and not the source.
  if (admitted.default_checks && record.outcome.ending == Ending::kNotExecutable) {
    SetError(result_, Error::Unsupported(result_.message + "; install python3"));
  }
  if (admitted.default_checks && command.tier == "test" && result_.verdict.failure_class == "CheckFailed" &&
      record.outcome.ending == Ending::kExited && record.outcome.exit_code == kIncompleteExitCode) {
    result_.message = "check test: incomplete: the tests ended before the test runner did";
  }
  if (record.outcome.stdout_stream.dropped_bytes + record.outcome.stderr_stream.dropped_bytes > 0) {
    Tell("output_truncated", {{"check", command.name}, {"bytes_total", record.outcome.usage.output_bytes}});
  }
  if (sinks_.events != nullptr) WriteNetworkEvents(record.outcome, {{"check", command.name}}, *sinks_.events);
  Tell("check_finished",
       {{"check", command.name}, {"exit_code", record.outcome.exit_code}, {"duration_ms", record.outcome.duration_ms}});
  result_.checks.push_back(std::move(record));
  return true;
}

}  // namespace caisson::verify
