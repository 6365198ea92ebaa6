// caisson verify: is this code good, and if not, what did it do?
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/command_audit.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "cli/request_file.h"
#include "cli/verify_service.h"
#include "intake/intake.h"
#include "verify/digest.h"
#include "verify/run_driver.h"

namespace caisson::cli {

namespace {

constexpr char kFooter[] = R"(
PATH is a Python file, or a directory with main.py, __main__.py, a single .py file, or tests, or such a directory packed as
.zip, .tar, .tar.gz, .tar.xz or .tar.zst; anything that ends in .json is read as a request. Python gets three checks:
syntax (compiled, not run), run (the entry file), test (pytest or unittest, when there are tests). The first check that
fails ends it.

Exit codes: 0 pass, 1 fail, 2 usage, 3 rejected by policy, 4 infrastructure error.

Where a service (caissond) takes jobs, it verifies, and standard error says so: the one that CAISSON_URL names, else one of
yours or root's at caisson/caissond.sock below $XDG_RUNTIME_DIR, /run or /var/lib. Otherwise, and for what only this
process can do (--dry-run, --audit, --artifacts, own profiles, raised limits …), it is done here. --local and
--service decide; CAISSON_URL=none is --local for all. A service that fails on the way is an error, never a second run.

A request for another language names its checks:
  {"source": {"files": {"a.c": "int main(void) { return 0; }"}},
   "checks": [{"name": "build", "tier": "build", "argv": ["gcc", "-o", "/scratch/a", "a.c"]},
              {"name": "run", "tier": "run", "argv": ["/scratch/a"]}]}

Examples:
  caisson verify answer.py
  caisson verify --json --timeout 5s answer.py
  caisson verify project/ --events events.jsonl
  caisson verify submission.zip
  caisson verify request.json --artifacts out/
  caisson verify request.json --archives store/

A relative source.path in a request is taken from the request's own directory.)";

// Reads the archive at `path` and puts what is in it into the request. `expected`: the hash it must have, if any.
Status TakeArchive(const std::string& path, std::string_view expected, verify::Source& source) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return Error::Invalid(path + ": " + std::strerror(errno));
  Result<intake::Archive> archive = intake::Archive::Take(file.get(), expected);
  if (!archive) return std::move(archive).error().In(path);
  Result<std::vector<policy::PlannedFile>> files =
      intake::Unpack(*archive, intake::FindArchiveFormat(source.archive_format).value(), intake::Limits{});
  if (!files) return std::move(files).error().In(path);
  source.archive = "sha256:" + archive->sha256();
  source.unpacked = *std::move(files);
  return {};
}

// Takes the archive a request names by its hash from a directory of files named by theirs.
Status TakeStoredArchive(const std::string& directory, verify::Source& source) {
  const std::string hash = source.archive->substr(source.archive->find(':') + 1);
  return TakeArchive(directory + "/" + hash, hash, source);
}

Result<verify::Request> MakeRequest(const VerifyFlags& flags) {
  const std::string& path = flags.path;
  verify::Request request;
  if (LooksLikeRequest(path)) {
    CAISSON_TRY(const std::string text, ReadRequestFile(path));
    Result<verify::Request> parsed = verify::ParseRequest(text);
    if (!parsed) return std::move(parsed).error().In(path);
    request = *std::move(parsed);
    if (request.source.path) request.source.path = PathBesideRequest(path, *request.source.path);
    if (request.source.archive && !flags.archives.empty())
      CAISSON_TRY_VOID(TakeStoredArchive(flags.archives, request.source));
  } else {
    request.request_id = verify::GenerateRequestId();
    if (LooksLikeArchive(path))
      CAISSON_TRY_VOID(TakeArchive(path, "", request.source));
    else
      request.source.path = path;
  }
  if (flags.mode_given) request.mode = flags.shared.mode == "strict" ? verify::Mode::kStrict : verify::Mode::kBalanced;
  return request;
}

// Opens what is written to before anything runs, so that a bad path costs nothing.
Result<VerifyOutputs> OpenOutputs(const SharedFlags& flags) {
  VerifyOutputs outputs;
  if (!flags.events.empty()) {
    CAISSON_TRY(outputs.events, verify::EventLog::Open(flags.events));
  }
  CAISSON_TRY(outputs.result_file, OpenResultFile(flags.result));
  return outputs;
}

int VerifyHere(const VerifyFlags& flags, VerifyOutputs& outputs, const runtime::Runtimes& runtimes) {
  verify::EventLog& events = outputs.events;
  Result<verify::Authority> authority = ReadAuthority(flags.shared, Describe(runtimes));
  if (!authority) {
    Complain(authority.error().message);
    return kExitUsage;
  }
  Result<verify::Request> request = MakeRequest(flags);
  if (!request) {
    Complain(request.error().message);
    return request.error().kind == ErrorKind::kInvalid ? kExitUsage : kExitInfrastructure;
  }
  events.Begin(request->request_id);

  Result<CommandAudit> audit = CommandAudit::Open(flags.shared.audit);
  if (!audit) {
    Complain(audit.error().message);
    return kExitInfrastructure;
  }
  Progress progress(flags.shared.quiet, flags.shared.json);
  policy::Decision decision;
  Result<verify::Admitted> admitted = verify::Admit(*request, *authority, &decision);
  if (!admitted && admitted.error().kind != ErrorKind::kDenied) {
    Complain(admitted.error().message);
    return kExitUsage;
  }
  if (admitted && flags.shared.dry_run) {
    std::puts(
        verify::DescribePlan(admitted->plan).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return kExitDone;
  }
  verify::RunSinks sinks;
  sinks.audit = &*audit;
  sinks.events = &events;
  if (!flags.artifacts.empty()) sinks.keep_artifact = verify::KeepIn(flags.artifacts);
  sinks.on_check_started = [&](const policy::PlannedCommand& command, size_t index, size_t count) {
    progress.Started(command.name, index, count);
  };
  sinks.on_check_finished = [&](const verify::CheckRecord&) { progress.Clear(); };
  verify::RunOptions options;
  std::optional<SignalStop> stop;
  if (admitted) options.stop = &stop.emplace();
  verify::RunDriver driver(*request, runtimes, sinks, options);
  const Result<verify::VerificationResult> result =
      admitted ? driver.Run(*std::move(admitted)) : driver.Refuse(admitted.error(), decision);
  if (!result) {
    Complain(result.error().message);
    return kExitInfrastructure;
  }
  const nlohmann::json document = verify::ToJson(*result);
  if (Status ended = driver.End(*result, audit->DigestOf(document), {{"result", document}}); !ended) {
    Complain(ended.error().message);
    return kExitInfrastructure;
  }
  return DeliverResult(document, flags, outputs) ? ExitCodeOf(result->verdict.status) : kExitInfrastructure;
}

}  // namespace

int VerifyCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes) {
  VerifyFlags flags;
  CLI::App app(
      "Run untrusted code under fixed limits and say what it did.\nUsage: caisson verify [flags] PATH|REQUEST.json",
      "verify");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  AddSharedFlags(app, flags.shared);
  app.add_option("--artifacts", flags.artifacts, "Keep collected artifacts in DIR, named by their SHA-256");
  app.add_option("--archives", flags.archives, "Take source.archive from DIR, where files are named by their SHA-256");
  CLI::Option* local = app.add_flag("--local", flags.local, "Verify in this process, also where there is a service");
  app.add_flag("--service", flags.service, "Verify at the service, or not at all")->excludes(local);
  app.add_option("PATH", flags.path, "A Python file, a directory, an archive, or a request (*.json)")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  flags.mode_given = app.count("--mode") > 0;

  Result<VerifyOutputs> outputs = OpenOutputs(flags.shared);
  if (!outputs) {
    Complain(outputs.error().message);
    return kExitUsage;
  }
  if (const auto exit_code = VerifyAtService(flags, *outputs)) return *exit_code;
  return VerifyHere(flags, *outputs, runtimes);
}

}  // namespace caisson::cli
