#include "verify/verifier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

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
}

// SECURITY: the name is the content's hash, so nothing of the workload's choosing becomes a path of ours. The directory
// is no link: where an earlier workload could have planted one it would choose where we write.
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

Status CollectArtifacts(const Request& request, runtime::Run& run, const VerifyOptions& options, EventLog& events,
                        VerificationResult& result) {
  if (request.artifacts.empty()) return {};
  CAISSON_TRY(runtime::Collection collection, run.Collect(request.artifacts));
  for (const runtime::CollectedFile& file : collection.files) {
    Artifact artifact{file.path, file.bytes.size(), Sha256Hex(file.bytes), ""};
    artifact.ref = "sha256:" + artifact.sha256;
    if (options.keep_artifact) {
      CAISSON_TRY(artifact.ref, options.keep_artifact(artifact.sha256, file.bytes));
    }
    events.Write("artifact_collected",
                 {{"path", artifact.path}, {"bytes", artifact.bytes}, {"sha256", artifact.sha256}});
    result.artifacts.push_back(std::move(artifact));
  }
  result.skipped_artifacts = std::move(collection.skipped);
  return {};
}

std::string ExplainNotExecutable(const policy::PlannedCommand& command, int error) {
  const std::string& program = command.argv[0];
  if (error == ENOENT)
    return "check " + command.name + ": " + program + " is not in the sandbox, or its interpreter is not";
  if (error == ENOEXEC) return "check " + command.name + ": " + program + " is not a program; a script needs a #! line";
  return "check " + command.name + ": " + program + " cannot be started: " + std::strerror(error);
}

}  // namespace

std::function<Result<std::string>(const std::string&, const std::string&)> KeepIn(std::string directory) {
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

VerificationResult Verify(const Request& request, Admitted admitted, runtime::Runtime& runtime, EventLog& events,
                          const VerifyOptions& options) {
  VerificationResult result = EmptyResult(request);
  const int64_t start = MonotonicNanos();
  const auto elapsed_ms = [&] { return (MonotonicNanos() - start) / 1'000'000; };
  result.skipped_checks = std::move(admitted.skipped);
  result.source_digest = admitted.source_digest;
  result.policy_digest = admitted.policy_digest;
  result.policy = DescribePolicy(admitted.plan);
  result.decision = policy::ToJson(admitted.plan.decision);
  const std::vector<policy::PlannedCommand> commands = admitted.plan.commands;
  const policy::OnViolation on_violation = admitted.plan.profile.on_violation;
  const int64_t budget_ms = admitted.plan.limits.budget_ms;

  Result<std::unique_ptr<runtime::Run>> run = runtime.Start(std::move(admitted.plan));
  if (!run) {
    events.Write("sandbox_failed", {{"error", run.error().message}});
    SetError(result, run.error());
    result.duration_ms = elapsed_ms();
    return result;
  }
  result.isolation = (*run)->isolation();
  events.Write(
      "sandbox_started",
      {{"isolation", ToJson(*result.isolation)}, {"policy", result.policy}, {"policy_digest", result.policy_digest}});

  size_t index = 0;
  for (; index < commands.size() && result.verdict.status == VerdictStatus::kPass; ++index) {
    const policy::PlannedCommand& command = commands[index];
    if (options.on_check_started) options.on_check_started(command, index, commands.size());
    events.Write("check_started", {{"check", command.name}, {"tier", command.tier}});
    runtime::ExecuteOptions execute;
    const int64_t left_ms = std::max<int64_t>(budget_ms - elapsed_ms(), 1);
    execute.timeout_ms = std::min(command.timeout_ms, left_ms);
    execute.timeout_name = left_ms < command.timeout_ms ? "budget_ms" : "command_timeout_ms";
    execute.last = index + 1 == commands.size();
    execute.signal_fd = options.signal_fd;
    execute.on_violation = [&](const Violation& violation) {
      events.Write("violation", {{"check", command.name}, {"violation", ToJson(violation)}});
    };
    if (options.on_output) {
      execute.on_output = [&](OutputStream stream, std::string_view bytes) {
        options.on_output(command.name, stream == OutputStream::kStdout ? "stdout" : "stderr", bytes);
      };
    }
    Result<CommandOutcome> outcome = (*run)->Execute(index, execute);
    if (!outcome) {
      SetError(result, outcome.error());
      break;
    }
    CheckRecord record{command.name, command.tier, command.argv, *std::move(outcome)};
    if (record.outcome.ending == Ending::kNotExecutable) {
      record.outcome.exit_code = record.outcome.exec_errno == ENOENT ? 127 : 126;
      result.message = ExplainNotExecutable(command, record.outcome.exec_errno);
    }
    result.verdict = Judge(record.outcome, on_violation);
    // Our own checks chose the interpreter: if it is not there, the machine is at fault and not the source.
    if (admitted.default_checks && record.outcome.ending == Ending::kNotExecutable) {
      SetError(result, Error::Unsupported(result.message + "; install python3"));
    }
    if (admitted.default_checks && command.tier == "test" && result.verdict.failure_class == "CheckFailed" &&
        record.outcome.ending == Ending::kExited && record.outcome.exit_code == kIncompleteExitCode) {
      result.message = "check test: incomplete: the tests ended before the test runner did";
    }
    if (record.outcome.stdout_stream.dropped_bytes + record.outcome.stderr_stream.dropped_bytes > 0) {
      events.Write("output_truncated", {{"check", command.name}, {"bytes_total", record.outcome.usage.output_bytes}});
    }
    events.Write("check_finished", {{"check", command.name},
                                    {"exit_code", record.outcome.exit_code},
                                    {"duration_ms", record.outcome.duration_ms}});
    if (options.on_check_finished) options.on_check_finished(record);
    result.checks.push_back(std::move(record));
  }
  for (; index < commands.size(); ++index) {
    result.skipped_checks.push_back({commands[index].name, commands[index].tier, "an earlier check did not pass"});
  }
  if (Status collected = CollectArtifacts(request, **run, options, events, result); !collected) {
    SetError(result, collected.error());
  }
  run->reset();
  events.Write("sandbox_stopped", json::object());
  if (result.verdict.status == VerdictStatus::kCancelled) events.Write("cancelled", json::object());
  result.duration_ms = elapsed_ms();
  return result;
}

}  // namespace caisson::verify
