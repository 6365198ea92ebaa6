// caisson doctor: shows what this machine can enforce. Every answer comes from a trial in a temporary sandbox.
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/service_access.h"
#include "verify/json_reader.h"

namespace caisson::cli {

namespace {

using nlohmann::json;

enum class Health { kOk, kDegraded, kMissing };

struct Finding {
  std::string mechanism;
  Health health = Health::kOk;
  std::string evidence;
  std::string fix;
};

struct Probe {
  Result<CommandOutcome> outcome;
  runtime::IsolationReport isolation;
};

policy::RunPlan SmallPlan(std::vector<std::string> argv) {
  policy::RunPlan plan;
  plan.profile = *policy::FindBuiltIn("balanced");
  plan.limits = plan.profile.limits;
  plan.limits.memory_bytes = int64_t{64} << 20;
  plan.limits.scratch_bytes = int64_t{16} << 20;
  plan.limits.processes = 16;
  plan.limits.output_bytes = 65536;
  policy::PlannedCommand command;
  command.name = command.tier = "probe";
  command.argv = std::move(argv);
  command.timeout_ms = 30'000;
  plan.commands.push_back(std::move(command));
  return plan;
}

Probe Try(runtime::Runtime& runtime, policy::RunPlan plan, int64_t timeout_ms = 30'000) {
  const runtime::Command command = runtime::Command::Of(plan.commands[0]);
  Result<std::unique_ptr<runtime::Run>> run = runtime.Start(std::move(plan));
  if (!run) return {std::move(run).error(), {}};
  runtime::ExecuteOptions options;
  options.timeout_ms = timeout_ms;
  options.timeout_name = "command_timeout_ms";
  options.last = true;
  return {(*run)->Execute(command, CommandIo::Capture(), options), (*run)->isolation()};
}

Probe TryShell(runtime::Runtime& runtime, const std::string& script) {
  return Try(runtime, SmallPlan({"/bin/sh", "-c", script}));
}

std::string Output(const Probe& probe) {
  return probe.outcome ? probe.outcome->stdout_stream.head + probe.outcome->stdout_stream.tail : "";
}

std::string ReadLink(const std::string& path) {
  char target[256];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof(target));
  return length < 0 ? "" : std::string(target, static_cast<size_t>(length));
}

// The first violation of that class, or nullptr.
const Violation* Find(const Probe& probe, ViolationClass violation_class) {
  if (!probe.outcome) return nullptr;
  for (const Violation& violation : probe.outcome->violations) {
    if (violation.violation_class == violation_class) return &violation;
  }
  return nullptr;
}

std::string EvidenceText(const Violation& violation) {
  std::string text = violation.reason;
  for (const auto& [key, value] : violation.evidence) {
    const auto* number = std::get_if<int64_t>(&value);
    text += " " + key + "=" + (number != nullptr ? std::to_string(*number) : std::get<std::string>(value));
  }
  return text;
}

Finding NoticesViolation(runtime::Runtime& runtime, const char* mechanism, ViolationClass expected,
                         policy::RunPlan plan, const std::string& fix, int64_t timeout_ms = 30'000) {
  const Probe probe = Try(runtime, std::move(plan), timeout_ms);
  if (!probe.outcome) return {mechanism, Health::kMissing, probe.outcome.error().message, fix};
  if (const Violation* violation = Find(probe, expected)) return {mechanism, Health::kOk, EvidenceText(*violation), ""};
  return {mechanism, Health::kMissing,
          "the attempt was not noticed (exit " + std::to_string(probe.outcome->exit_code) + ")", fix};
}

std::vector<Finding> CheckNamespaces(runtime::Runtime& runtime) {
  std::vector<Finding> findings;
  const Probe probe =
      TryShell(runtime, "for n in user pid mnt net ipc uts cgroup time; do readlink /proc/self/ns/$n; done");
  const std::string inside = Output(probe);
  for (const char* name : {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"}) {
    const std::string host = ReadLink(std::string("/proc/self/ns/") + name);
    const size_t at = inside.find(std::string(name).append(":["));
    const std::string own = at == std::string::npos ? "" : inside.substr(at, inside.find('\n', at) - at);
    const bool separate = !own.empty() && own != host;
    findings.push_back({std::string("namespace.") + name, separate ? Health::kOk : Health::kMissing,
                        "host " + host + ", sandbox " + own,
                        separate ? "" : "needs Linux 5.14 or newer with this namespace compiled in"});
  }
  return findings;
}

std::vector<Finding> CheckPrivileges(runtime::Runtime& runtime) {
  const Probe probe = TryShell(runtime, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
  const std::string status = Output(probe);
  const auto holds = [&](const char* line) { return status.find(line) != std::string::npos; };
  const bool no_capabilities = holds("CapInh:\t0000000000000000") && holds("CapPrm:\t0000000000000000") &&
                               holds("CapEff:\t0000000000000000") && holds("CapBnd:\t0000000000000000") &&
                               holds("CapAmb:\t0000000000000000");
  const bool no_new_privileges = holds("NoNewPrivs:\t1"), filtered = holds("Seccomp:\t2");
  const auto health = [](bool good) { return good ? Health::kOk : Health::kMissing; };
  return {{"capabilities", health(no_capabilities), no_capabilities ? "all five sets empty" : status, ""},
          {"no_new_privs", health(no_new_privileges), no_new_privileges ? "NoNewPrivs: 1" : status, ""},
          {"seccomp", health(filtered), filtered ? "Seccomp: 2, profile " + probe.isolation.seccomp_profile : status,
           filtered ? "" : "needs CONFIG_SECCOMP_FILTER"}};
}

Finding CheckCopyOnWrite(runtime::Runtime& runtime) {
  char directory[] = "/tmp/caisson-doctor-XXXXXX";
  if (::mkdtemp(directory) == nullptr)
    return {"copy_on_write", Health::kMissing, "cannot make a directory in /tmp", ""};
  Finding finding{"copy_on_write", Health::kMissing, "",
                  "needs overlayfs in user namespaces: Linux 5.11 or newer; modprobe overlay"};
  policy::RunPlan plan = SmallPlan({"/bin/sh", "-c", "echo changed > /workspace/file && cat /workspace/file"});
  if (Result<policy::JudgedPath> source = policy::OpenJudged(directory)) {
    plan.workspace_mount = policy::PlannedMount{*std::move(source), "/workspace", policy::Access::kCopyOnWrite};
    plan.workspace_access = policy::Access::kCopyOnWrite;
    const Probe probe = Try(runtime, std::move(plan));
    const bool untouched = ::access((std::string(directory) + "/file").c_str(), F_OK) != 0;
    if (!probe.outcome)
      finding.evidence = probe.outcome.error().message;
    else if (Output(probe) == "changed\n" && untouched)
      finding = {"copy_on_write", Health::kOk, "wrote to /workspace; the host's directory is unchanged", ""};
    else
      finding.evidence = "the write did not work, or reached the host";
  }
  ::rmdir(directory);
  return finding;
}

Finding CheckKernel() {
  struct utsname name {};
  ::uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  const bool new_enough = major > 5 || (major == 5 && minor >= 14);
  return {"kernel", new_enough ? Health::kOk : Health::kMissing, name.release,
          new_enough ? "" : "Linux 5.14 or newer is needed"};
}

std::vector<Finding> Examine(runtime::Runtime& runtime) {
  std::vector<Finding> findings = {CheckKernel()};
  const Probe first = TryShell(runtime, "true");
  if (!first.outcome) {
    findings.push_back(
        {"sandbox", Health::kMissing, first.outcome.error().message, "the message names the wall and the setting"});
    return findings;
  }
  findings.push_back({"sandbox", Health::kOk, "built, used and removed", ""});
  for (Finding& finding : CheckNamespaces(runtime)) findings.push_back(std::move(finding));
  for (Finding& finding : CheckPrivileges(runtime)) findings.push_back(std::move(finding));
  const int abi = first.isolation.landlock_abi;
  findings.push_back({"landlock", abi > 0 ? Health::kOk : Health::kMissing, "ABI " + std::to_string(abi),
                      abi > 0 ? "" : "boot with lsm=landlock,…"});
  const bool cgroup = first.isolation.cgroup_driver != "none";
  findings.push_back({"cgroup", cgroup ? Health::kOk : Health::kDegraded, "driver " + first.isolation.cgroup_driver,
                      cgroup || first.isolation.degraded.empty() ? "" : first.isolation.degraded.front()});

  findings.push_back(NoticesViolation(runtime, "limit.memory", ViolationClass::kMemoryLimit,
                                      SmallPlan({"/bin/sh", "-c", "head -c 300M /dev/zero | tail -c 200M > /dev/null"}),
                                      "see cgroup"));
  findings.push_back(NoticesViolation(
      runtime, "limit.processes", ViolationClass::kProcessLimit,
      SmallPlan({"/bin/sh", "-c", "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done; exit 1"}), "see cgroup"));
  findings.push_back(
      NoticesViolation(runtime, "limit.output", ViolationClass::kOutputLimit, SmallPlan({"/usr/bin/yes"}), ""));
  findings.push_back(
      NoticesViolation(runtime, "limit.time", ViolationClass::kTimeout, SmallPlan({"/bin/sleep", "60"}), "", 100));
  findings.push_back(NoticesViolation(runtime, "limit.scratch", ViolationClass::kFilesystemWrite,
                                      SmallPlan({"/bin/sh", "-c", "head -c 32M /dev/zero > /scratch/full"}), ""));
  findings.push_back(NoticesViolation(runtime, "observe.write", ViolationClass::kFilesystemWrite,
                                      SmallPlan({"/bin/sh", "-c", "echo x > /workspace/x"}), ""));
  findings.push_back(NoticesViolation(runtime, "observe.network", ViolationClass::kNetworkAccess,
                                      SmallPlan({"/bin/bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/80"}), ""));
  findings.push_back(NoticesViolation(runtime, "observe.syscall", ViolationClass::kSyscall,
                                      SmallPlan({"/usr/bin/unshare", "--user", "true"}), ""));
  findings.push_back(CheckCopyOnWrite(runtime));
  const Probe python = Try(runtime, SmallPlan({"python3", "-c", "import sys; print(sys.version.split()[0])"}));
  const bool has_python = python.outcome && python.outcome->ending == Ending::kExited && python.outcome->exit_code == 0;
  findings.push_back({"python3", has_python ? Health::kOk : Health::kDegraded,
                      has_python ? Output(python).substr(0, Output(python).find('\n')) : "not found",
                      has_python ? "" : "apt-get install python3, to verify Python"});
  return findings;
}

// A runtime besides the first, which no profile needs that the first can serve: one that does not run here is no fault
// of the machine, and the finding says how to get it.
Finding CheckRuntime(runtime::Runtime& runtime) {
  const policy::RuntimeDescription description = runtime.Describe();
  const std::string mechanism = "runtime." + description.name;
  const Probe probe = TryShell(runtime, "echo x > /workspace/x");
  if (!probe.outcome)
    return {mechanism, Health::kDegraded, probe.outcome.error().message,
            "docs/operator/runtimes.md says what this runtime needs"};
  std::string evidence =
      std::string("strength ") + policy::NameOf(description.strength) + ", cgroup " + probe.isolation.cgroup_driver;
  for (const std::string& line : probe.isolation.degraded) evidence += "; " + line;
  const bool observes = description.Can(policy::Ability::kObservesWrites);
  if (observes && Find(probe, ViolationClass::kFilesystemWrite) == nullptr)
    return {mechanism, Health::kDegraded, "a refused write was not noticed", ""};
  return {mechanism, Health::kOk, std::move(evidence), ""};
}

const char* HealthName(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kDegraded ? "degraded" : "missing";
}

// The state of a running service: each part and its fault. "Not ready" is a valid answer.
int ExamineService(const ServiceFlags& flags) {
  return WithService(flags, [&](const client::Client& client) -> Result<int> {
    CAISSON_TRY(const client::Reply reply, client.Send(Get("/readyz")));
    if (reply.status != 200 && reply.status != 503) return client::ProblemOf(reply);
    CAISSON_TRY(const json state, verify::ReadJson(reply.body, {}));
    if (flags.json) {
      PrintJson(state);
      return reply.status == 200 ? 0 : 1;
    }
    if (const auto checks = state.find("checks"); checks != state.end() && checks->is_object()) {
      for (const auto& [name, said] : checks->items()) {
        const std::string text = said.is_string() ? said.get<std::string>() : said.dump();
        std::printf("%-9s %-18s %s\n", text == "ok" ? "ok" : "missing", EscapeForTerminal(name).c_str(),
                    text == "ok" ? "" : EscapeForTerminal(text).c_str());
      }
    }
    std::printf("\nThe service %s jobs.\n", reply.status == 200 ? "takes" : "does not take");
    return reply.status == 200 ? 0 : 1;
  });
}

}  // namespace

int DoctorCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes) {
  ServiceFlags flags;
  bool service = false;
  CLI::App app(
      "Probe every mechanism by using it; with --service, check a running service.\n"
      "Usage: caisson doctor [--service] [--json]",
      "doctor");
  AddServiceFlags(app, flags,
                  "\nExit code: 0 if the balanced profile can be enforced here (the service accepts jobs), 1 if not, "
                  "2 usage,\n4 if there is no service.\n");
  app.add_flag("--service", service, "Check the service instead of the machine");
  if (const auto exit_code = Parse(app, std::move(arguments), 2)) return *exit_code;
  if (service) return ExamineService(flags);
  const bool as_json = flags.json;

  std::vector<Finding> findings = Examine(*runtimes.front());
  for (size_t i = 1; i < runtimes.size(); ++i) findings.push_back(CheckRuntime(*runtimes[i]));
  const bool enforceable = std::none_of(findings.begin(), findings.end(),
                                        [](const Finding& finding) { return finding.health == Health::kMissing; });
  if (as_json) {
    json list = json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"mechanism", finding.mechanism},
                      {"status", HealthName(finding.health)},
                      {"evidence", ReplaceInvalidUtf8(finding.evidence)},
                      {"fix", finding.fix.empty() ? json(nullptr) : json(finding.fix)}});
    }
    std::puts(json({{"schema_version", 1}, {"balanced_enforceable", enforceable}, {"findings", std::move(list)}})
                  .dump(2)
                  .c_str());
    return enforceable ? 0 : 1;
  }
  for (const Finding& finding : findings) {
    std::printf("%-9s %-18s %s\n", HealthName(finding.health), finding.mechanism.c_str(),
                EscapeForTerminal(finding.evidence).c_str());
    if (!finding.fix.empty()) std::printf("%-9s %-18s fix: %s\n", "", "", EscapeForTerminal(finding.fix).c_str());
  }
  std::printf("\nThe balanced profile %s be enforced here.\n", enforceable ? "can" : "cannot");
  return enforceable ? 0 : 1;
}

}  // namespace caisson::cli
