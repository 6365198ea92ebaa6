// caisson verify: is this code good, and if not, what did it do?
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/audit_trail.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "cli/request_file.h"
#include "cli/verify_service.h"
#include "intake/intake.h"
#include "verify/verifier.h"

namespace caisson::cli {

namespace {

constexpr int kUsage = 2;
constexpr int kInfrastructure = 4;

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

int ExitCode(const verify::VerificationResult& result) {
  switch (result.verdict.status) {
    case verify::VerdictStatus::kPass:
      return 0;
    case verify::VerdictStatus::kFail:
    case verify::VerdictStatus::kCancelled:
      return 1;
    case verify::VerdictStatus::kRejected:
      return 3;
    case verify::VerdictStatus::kError:
      return 4;
  }
  return 4;
}

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

int VerifyHere(const VerifyFlags& flags, VerifyOutputs& outputs, runtime::Runtime& runtime) {
  verify::EventLog& events = outputs.events;
  Result<verify::Authority> authority = ReadAuthority(flags.shared);
  if (!authority) {
    Complain(authority.error().message);
    return kUsage;
  }
  Result<verify::Request> request = MakeRequest(flags);
  if (!request) {
    Complain(request.error().message);
    return request.error().kind == ErrorKind::kInvalid ? kUsage : kInfrastructure;
  }
  events.Begin(request->request_id);

  Result<AuditTrail> trail = AuditTrail::Open(flags.shared.audit);
  if (!trail) {
    Complain(trail.error().message);
    return kInfrastructure;
  }
  Progress progress(flags.shared.quiet, flags.shared.json);
  Status network = RefuseNetwork(flags.shared);
  policy::Decision decision;
  Result<verify::Admitted> admitted =
      network ? verify::Admit(*request, *authority, &decision) : Result<verify::Admitted>(network.error());
  verify::VerificationResult result;
  if (!admitted) {
    if (admitted.error().kind != ErrorKind::kDenied) {
      Complain(admitted.error().message);
      return kUsage;
    }
    if (Status kept = trail->Rejected(request->request_id, admitted.error()); !kept) {
      Complain(kept.error().message);
      return kInfrastructure;
    }
    const nlohmann::ordered_json reasons = policy::ToJson(decision);
    events.Write("rejected", {{"reason", admitted.error().message}, {"decision", reasons}});
    result = verify::RefusalResult(*request, admitted.error());
    result.decision = reasons;
  } else if (flags.shared.dry_run) {
    std::puts(
        verify::DescribePlan(admitted->plan).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  } else {
    events.Write("admitted", {{"policy_digest", admitted->policy_digest},
                              {"source_digest", admitted->source_digest},
                              {"decision", policy::ToJson(admitted->plan.decision)}});
    if (Status kept = trail->Admitted(request->request_id, admitted->policy_digest, admitted->source_digest,
                                      admitted->plan.decision);
        !kept) {
      Complain(kept.error().message);
      return kInfrastructure;
    }
    verify::VerifyOptions options;
    options.signal_fd = TakeSignals();
    if (!flags.artifacts.empty()) options.keep_artifact = verify::KeepIn(flags.artifacts);
    options.on_check_started = [&](const policy::PlannedCommand& command, size_t index, size_t count) {
      progress.Started(command.name, index, count);
    };
    options.on_check_finished = [&](const verify::CheckRecord&) { progress.Clear(); };
    result = verify::Verify(*request, *std::move(admitted), runtime, events, options);
  }
  const nlohmann::json document = verify::ToJson(result);
  if (Status kept = trail->Ended(result, document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      !kept) {
    Complain(kept.error().message);
    return kInfrastructure;
  }
  events.Write("result", {{"result", document}});
  return DeliverResult(document, flags, outputs) ? ExitCode(result) : kInfrastructure;
}

}  // namespace

int VerifyCommand(std::vector<std::string> arguments, runtime::Runtime& runtime) {
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
  if (const auto exit_code = Parse(app, std::move(arguments), kUsage)) return *exit_code;
  flags.mode_given = app.count("--mode") > 0;

  Result<VerifyOutputs> outputs = OpenOutputs(flags.shared);
  if (!outputs) {
    Complain(outputs.error().message);
    return kUsage;
  }
  if (const auto exit_code = VerifyAtService(flags, *outputs)) return *exit_code;
  return VerifyHere(flags, *outputs, runtime);
}

}  // namespace caisson::cli
