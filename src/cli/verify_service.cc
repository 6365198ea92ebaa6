#include "cli/verify_service.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/words.h"
#include "cli/progress.h"
#include "cli/result_text.h"
#include "cli/service_access.h"
#include "cli/service_discovery.h"
#include "cli/service_job.h"
#include "verify/result.h"

namespace caisson::cli {

using nlohmann::json;

namespace {

bool IsProfileFile(const std::string& profile) {
  const bool yaml = profile.size() > 5 && profile.compare(profile.size() - 5, 5, ".yaml") == 0;
  return yaml || profile.find('/') != std::string::npos;
}

// Flags that only a run in this process supports.
Status ExpectNothingLocal(const VerifyFlags& flags) {
  const SharedFlags& shared = flags.shared;
  const struct {
    bool given;
    const char* why;
  } kLocal[] = {
      {shared.dry_run, "--dry-run shows the plan of this machine"},
      {!shared.audit.empty(), "--audit names a log of this command; a service has its own"},
      {!flags.artifacts.empty(), "--artifacts is a directory of this machine; a service keeps them: caisson artifacts"},
      {!flags.archives.empty(), "--archives is a directory of this machine"},
      {IsProfileFile(shared.profile), "--profile is a file of this machine"},
      {!shared.profiles.empty(), "--profiles is a directory of this machine"},
      {!shared.policy.empty(), "--policy is a file of this machine; a service has its own rules"},
      {shared.role != "operator", "--role is for the rules of this machine; a service authenticates its callers"},
      {!shared.runtime.empty(), "--runtime is one of this machine; a service chooses by its own rules"},
      {!shared.image.empty(), "--image is one of this machine; a request can name one of the service's"},
      {!shared.approve.empty(), "--approve is for the rules of this machine; a service has approvers"},
      {!shared.network.empty() || !shared.allow_domains.empty() || !shared.deny_domains.empty() ||
           !shared.host_ports.empty() || !shared.credentials.empty() || !shared.credentials_file.empty(),
       "the command line asks for the network"},
      {std::getenv("CAISSON_LAUNCHER") != nullptr, "CAISSON_LAUNCHER names the launcher to use"},
  };
  const auto* found = std::find_if(std::begin(kLocal), std::end(kLocal), [](const auto& one) { return one.given; });
  if (found != std::end(kLocal)) return Error::Unsupported(found->why);
  return {};
}

struct LimitFlag {
  const char* name;  // in a request
  std::optional<int64_t> verify::OperatorLimits::*asked;
  int64_t policy::Limits::*profile;
};

constexpr LimitFlag kLimitFlags[] = {
    {"command_timeout_ms", &verify::OperatorLimits::command_timeout_ms, &policy::Limits::command_timeout_ms},
    {"cpu", &verify::OperatorLimits::cpu_millis, &policy::Limits::cpu_millis},
    {"memory_bytes", &verify::OperatorLimits::memory_bytes, &policy::Limits::memory_bytes},
    {"processes", &verify::OperatorLimits::processes, &policy::Limits::processes},
    {"output_bytes", &verify::OperatorLimits::output_bytes, &policy::Limits::output_bytes},
    {"scratch_bytes", &verify::OperatorLimits::scratch_bytes, &policy::Limits::scratch_bytes},
    {"cpu_time_ms", &verify::OperatorLimits::cpu_time_ms, &policy::Limits::cpu_time_ms},
    {"stack_bytes", &verify::OperatorLimits::stack_bytes, &policy::Limits::stack_bytes},
};

// Flags may raise a limit, a request may not; so such a run stays on this machine.
Status PutLimits(const SharedFlags& flags, json& request) {
  CAISSON_TRY(const verify::OperatorLimits limits, ReadLimits(flags));
  CAISSON_TRY(const verify::Request read, verify::ReadRequest(request, ""));
  for (const LimitFlag& flag : kLimitFlags) {
    const std::optional<int64_t>& asked = limits.*flag.asked;
    if (!asked) continue;
    CAISSON_TRY(const policy::Profile profile,
                policy::ProfileStore().Find(read.profile.empty() ? verify::ModeName(read.mode) : read.profile));
    if (policy::IsWider(*asked, profile.limits.*flag.profile))
      return Error::Unsupported(std::string("the flag for ") + flag.name + " raises a limit, which a request may not");
    const std::optional<int64_t>& own = read.limits.*flag.asked;
    if (own && *own > *asked)
      return Error::Unsupported(std::string("limits.") + flag.name + " of the request is above the flag's");
    if (own) continue;
    request["limits"][flag.name] =
        flag.asked == &verify::OperatorLimits::cpu_millis ? json(static_cast<double>(*asked) / 1000) : json(*asked);
  }
  return {};
}

// The request in the form that a service accepts. kUnsupported: it cannot be sent; other errors are faults of the
// request.
Result<Shipment> MakeShipment(const VerifyFlags& flags) {
  CAISSON_TRY_VOID(ExpectNothingLocal(flags));
  CAISSON_TRY(Shipment shipment, PackShipment(flags.path));
  json& request = shipment.request;
  if (const auto mounts = request.find("mounts"); mounts != request.end() && !mounts->empty())
    return Error::Unsupported("mounts are directories of this machine");
  if (flags.mode_given) request["mode"] = flags.shared.mode;
  if (!flags.shared.profile.empty()) request["profile"] = flags.shared.profile;
  CAISSON_TRY_VOID(PutLimits(flags.shared, request));
  EnsureKey(request);
  return shipment;
}

// While this object exists, a terminating signal cancels the job; the process exits when the job ends. A second signal
// exits at once.
class CancelOnSignal {
 public:
  CancelOnSignal(const client::Client& client, std::string job_id)
      : signals_(TakeSignals()),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this, &client, id = std::move(job_id)] { Watch(client, id); }) {}
  ~CancelOnSignal() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;

 private:
  void Watch(const client::Client& client, const std::string& job_id) const {
    bool asked = false;
    for (;;) {
      pollfd ready[] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(ready, 2, -1) < 0) continue;
      if (ready[1].revents != 0) return;
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof(info)) != ssize_t{sizeof(info)}) continue;
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP && signal != SIGQUIT) continue;
      if (asked) ::_exit(128 + signal);
      asked = true;
      const Result<json> cancelled = client.Json(Post(JobTarget(job_id, ":cancel"), {{"reason", "interrupted"}}));
      // If the job ended meanwhile, the waiting thread learns it.
      if (!cancelled && cancelled.error().kind != ErrorKind::kConflict) Complain(cancelled.error().message);
    }
  }

  UniqueFd signals_;
  UniqueFd stop_;
  std::thread thread_;
};

Result<int> Run(const client::Client& client, const Shipment& shipment, const VerifyFlags& flags,
                VerifyOutputs& outputs) {
  CAISSON_TRY(const json job, SendShipment(client, shipment));
  const std::string job_id = Shown(job, "job_id");
  Result<json> result = Error{};
  {
    Progress progress(flags.shared.quiet, flags.shared.json);
    const CancelOnSignal cancel(client, job_id);
    result = AwaitResult(client, job_id, [&](const json& event) {
      outputs.events.Relay(event);
      progress.On(event);
    });
  }
  if (!result) return std::move(result).error().In("job " + job_id);
  CAISSON_TRY(const int exit_code, ExitCodeOf(*result));
  return DeliverResult(*result, flags, outputs) ? exit_code : kExitInfrastructure;
}

}  // namespace

std::optional<int> VerifyAtService(const VerifyFlags& flags, VerifyOutputs& outputs) {
  const bool quiet = flags.shared.quiet;
  // A missing file cannot be sent; the local run reports it.
  struct stat info {};
  if (flags.local || ::stat(flags.path.c_str(), &info) != 0) return std::nullopt;
  const Result<Discovery> found = DiscoverService();
  if (!found) return Report(found.error());
  if (!found->service) {
    if (flags.service) return Report({ErrorKind::kSystem, 0, found->absence});
    if (found->surprising && !quiet) Complain(found->absence + "; verifying here");
    return std::nullopt;
  }
  const std::string place = found->service->endpoint().Description();
  const Result<Shipment> shipment = MakeShipment(flags);
  if (!shipment) {
    const bool cannot = shipment.error().kind == ErrorKind::kUnsupported;
    if (flags.service)
      return cannot ? Report(Error::Invalid("--service: " + shipment.error().message)) : Report(shipment.error());
    // The local run finds a fault of the request again, before anything starts.
    if (cannot && !quiet)
      Complain("not at the service " + place + ": " + shipment.error().message + "; verifying here");
    return std::nullopt;
  }
  if (!quiet) Complain("verifying at the service " + place);
  Result<int> done = Run(*found->service, *shipment, flags, outputs);
  if (done) return *done;
  Error error = std::move(done).error();
  error.message = "the service at " + place + ": " + error.message + " (--local verifies without it)";
  return Report(error);
}

bool DeliverResult(const json& document, const VerifyFlags& flags, const VerifyOutputs& outputs) {
  if (outputs.result_file) {
    if (Status written = WriteJson(outputs.result_file.get(), document); !written) {
      Complain(written.error().message);
      return false;
    }
  }
  if (flags.shared.json)
    PrintJson(document);
  else if (!flags.shared.quiet)
    PrintResult(document, flags.path);
  return true;
}

}  // namespace caisson::cli
