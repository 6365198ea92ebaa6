#include "cli/flags.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/images.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "verify/request_syntax.h"

namespace caisson::cli {

namespace {

Status ReadLimit(const char* flag, const std::string& text, Result<int64_t> (*parse)(std::string_view), int64_t minimum,
                 std::optional<int64_t>& limit) {
  if (text.empty()) return {};
  Result<int64_t> value = parse(text);
  if (!value) return std::move(value).error().In(flag);
  if (*value < minimum) {
    return Error::Invalid(std::string(flag) + ": " + EscapeForTerminal(text) +
                          " is too small; the least that makes sense is " +
                          (parse == ParseSize       ? FormatSize(minimum)
                           : parse == ParseDuration ? FormatDuration(minimum)
                           : parse == ParseCpus     ? "0.01"
                                                    : std::to_string(minimum)));
  }
  limit = *value;
  return {};
}

void AddJudgingFlags(CLI::App& app, SharedFlags& flags) {
  // The last value counts, so that a script or an alias can set defaults.
  const auto add_limit = [&](const char* names, std::string& value, const char* help) {
    app.add_option(names, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  add_limit("--memory,-m", flags.memory, "Memory limit, for example 512M; swap is off");
  add_limit("--cpus", flags.cpus, "CPU limit, for example 1.5 or 500m");
  add_limit("--pids-limit", flags.pids, "Most processes and threads at once");
  add_limit("--timeout", flags.timeout, "Time limit of a command, for example 30s");
  add_limit("--output-limit", flags.output_limit, "Most bytes of output, for example 10M");
  add_limit("--scratch", flags.scratch, "Size of /scratch, for example 512M");
  add_limit("--cpu-time", flags.cpu_time,
            "CPU time of a command, for example 10s; no limit unless the profile has one");
  add_limit("--stack", flags.stack, "Size of the stack, for example 64M");
  app.add_option("--network", flags.network, "none: only the sandbox's own loopback; allowlist: what is allowed")
      ->check(CLI::IsMember({"none", "allowlist"}));
  app.add_option("--allow-domain", flags.allow_domains,
                 "HOST, *.HOST, HOST:80, tcp://HOST:PORT or class:NAME may be reached")
      ->allow_extra_args(false);
  app.add_option("--deny-domain", flags.deny_domains,
                 "With --network allowlist: HOST[:PORT] may not, whatever is allowed")
      ->allow_extra_args(false);
  app.add_option("--host-port", flags.host_ports, "PORT of this machine's loopback may be reached, at 127.0.0.1 inside")
      ->allow_extra_args(false);
  app.add_option("--credential", flags.credentials,
                 "NAME: requests to its host are sent with that secret, which never enters the sandbox")
      ->allow_extra_args(false);
  app.add_option("--credentials", flags.credentials_file,
                 "FILE that says what each credential is; default /etc/caisson/credentials.yaml");
  app.add_option("--profile", flags.profile, "Isolation profile, by name or FILE.yaml; default: the mode's");
  app.add_option("--profiles", flags.profiles, "Directory of your own profiles; default /etc/caisson/profiles");
  app.add_option("--policy", flags.policy, "Rules for risk and overrides; default /etc/caisson/policy.yaml, if any");
  app.add_option("--role", flags.role, "The role whose overrides apply; default operator");
  app.add_option("--approve", flags.approve, "RULE: approve, in your name, what that rule of the policy requires")
      ->allow_extra_args(false);
  app.add_option(
      "--image", flags.image,
      "Show the programs of this image (caisson image) instead of the host's; venv:PATH: a Python environment");
  app.add_option("--runtime", flags.runtime, "Run in this runtime or none; default: the weakest that policy accepts")
      ->check(CLI::IsMember(std::vector<std::string>(policy::kRuntimeNames.begin(), policy::kRuntimeNames.end())));
}

}  // namespace

void AddSharedFlags(CLI::App& app, SharedFlags& flags) {
  AddJudgingFlags(app, flags);
  app.add_option("--mode", flags.mode, "balanced or strict")->check(CLI::IsMember({"balanced", "strict"}));
  app.add_option("--events", flags.events, "Write lifecycle events, one JSON object a line, to FILE or -");
  app.add_option("--audit", flags.audit, "Append decisions to the audit log FILE before acting on them");
  app.add_option("--result", flags.result, "Write the result document to FILE");
  app.add_flag("--json", flags.json, "Print the result document, and nothing else, on standard output");
  app.add_flag("--quiet,-q", flags.quiet, "Print only errors");
  app.add_flag("--dry-run", flags.dry_run, "Print the effective plan as JSON and stop");
}

void AddSessionFlags(CLI::App& app, SharedFlags& flags) {
  AddJudgingFlags(app, flags);
  app.add_flag("--json", flags.json, "With --detach: print the session as one JSON document");
  app.add_flag("--quiet,-q", flags.quiet, "Print only errors");
}

Result<verify::OperatorLimits> ReadLimits(const SharedFlags& flags) {
  verify::OperatorLimits limits;
  CAISSON_TRY_VOID(ReadLimit("--memory", flags.memory, ParseSize, policy::kMinMemoryBytes, limits.memory_bytes));
  CAISSON_TRY_VOID(ReadLimit("--cpus", flags.cpus, ParseCpus, 10, limits.cpu_millis));
  CAISSON_TRY_VOID(ReadLimit("--pids-limit", flags.pids, ParseCount, 1, limits.processes));
  CAISSON_TRY_VOID(ReadLimit("--timeout", flags.timeout, ParseDuration, 1, limits.command_timeout_ms));
  CAISSON_TRY_VOID(ReadLimit("--output-limit", flags.output_limit, ParseSize, 1, limits.output_bytes));
  CAISSON_TRY_VOID(ReadLimit("--scratch", flags.scratch, ParseSize, 4096, limits.scratch_bytes));
  CAISSON_TRY_VOID(ReadLimit("--cpu-time", flags.cpu_time, ParseDuration, 1, limits.cpu_time_ms));
  CAISSON_TRY_VOID(ReadLimit("--stack", flags.stack, ParseSize, policy::kMinStackBytes, limits.stack_bytes));
  if (limits.cpu_time_ms && *limits.cpu_time_ms > policy::kMaxTimeoutMs)
    return Error::Invalid("--cpu-time: longer than a year");
  if (limits.processes && *limits.processes > policy::kMaxProcesses)
    return Error::Invalid("--pids-limit: more than Linux can number (" + std::to_string(policy::kMaxProcesses) + ")");
  if (limits.command_timeout_ms && *limits.command_timeout_ms > policy::kMaxTimeoutMs)
    return Error::Invalid("--timeout: longer than a year");
  if (limits.cpu_millis && *limits.cpu_millis > int64_t{1000} * ::sysconf(_SC_NPROCESSORS_ONLN)) {
    return Error::Invalid("--cpus: this machine has " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  return limits;
}

namespace {

Result<verify::Network> ReadNetwork(const SharedFlags& flags) {
  verify::Network network;
  // Allowing something asks for the allowlist, unless --network none is given too.
  const bool allows =
      !flags.allow_domains.empty() || !flags.host_ports.empty() || !flags.credentials.empty() || flags.ask;
  network.allowlist = flags.network == "allowlist" || (flags.network.empty() && allows);
  network.given = network.allowlist || !flags.network.empty();
  for (const auto& [flag, given, entries, fault] :
       {std::tuple{"--allow-domain", &flags.allow_domains, &network.allow, &policy::FaultInAllowEntry},
        std::tuple{"--deny-domain", &flags.deny_domains, &network.deny, &policy::FaultInDenyEntry}}) {
    for (std::string entry : *given) {
      if (!network.allowlist) return Error::Invalid(std::string(flag) + ": needs --network allowlist");
      std::transform(entry.begin(), entry.end(), entry.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
      if (const policy::Fault found = fault(entry))
        return Error::Invalid(std::string(flag) + ": " + EscapeForTerminal(entry) + " " + *found);
      entries->push_back(std::move(entry));
    }
  }
  if (!network.allowlist && allows)
    return Error::Invalid("--host-port, --credential and --ask need --network allowlist");
  for (const std::string& port : flags.host_ports) {
    if (const policy::Fault found = policy::FaultInPort(port))
      return Error::Invalid("--host-port: " + EscapeForTerminal(port) + " " + *found);
    network.host_ports.push_back(static_cast<uint16_t>(std::stoul(port)));
  }
  for (const std::string& name : flags.credentials) {
    if (const policy::Fault found = policy::FaultInCredentialName(name))
      return Error::Invalid("--credential: " + EscapeForTerminal(name) + " " + *found);
    network.credentials.push_back(name);
  }
  if (flags.ask) network.ask = true;
  return network;
}

}  // namespace

Result<verify::Authority> ReadAuthority(const SharedFlags& flags, std::vector<policy::RuntimeDescription> runtimes) {
  verify::Authority authority;
  authority.runtimes = std::move(runtimes);
  authority.runtime = flags.runtime;
  authority.image = flags.image;
  authority.open_image = OpenImage;
  CAISSON_TRY(authority.rules, policy::LoadRules(flags.policy));
  if (!flags.profiles.empty()) authority.profiles = policy::ProfileStore(flags.profiles);
  authority.profile = flags.profile;
  authority.role = flags.role;
  authority.approved_rules = flags.approve;
  CAISSON_TRY(authority.limits, ReadLimits(flags));
  CAISSON_TRY(authority.network, ReadNetwork(flags));
  authority.credentials_file = flags.credentials_file;
  return authority;
}

Result<policy::Access> ReadAccess(const std::string& text) {
  if (text == "ro") return policy::Access::kReadOnly;
  if (text == "cow") return policy::Access::kCopyOnWrite;
  if (text == "rw") return policy::Access::kReadWrite;
  return Error::Invalid("access " + EscapeForTerminal(text) + " is none of ro, cow, rw");
}

Result<verify::Mount> ReadMount(const std::string& text) {
  const size_t first = text.find(':');
  if (first == std::string::npos || first == 0)
    return Error::Invalid("-v " + EscapeForTerminal(text) + ": expected SRC:DST[:ro|cow|rw]");
  const size_t second = text.find(':', first + 1);
  verify::Mount mount;
  mount.source = text.substr(0, first);
  mount.target = text.substr(first + 1, second == std::string::npos ? std::string::npos : second - first - 1);
  if (second != std::string::npos) {
    CAISSON_TRY(mount.access, ReadAccess(text.substr(second + 1)));
  }
  // As --workspace.
  if (const auto fault = verify::FaultInMountTarget(mount.target); fault && mount.target != "/workspace")
    return Error::Invalid("-v " + EscapeForTerminal(text) + ": target " + *fault);
  return mount;
}

std::optional<int> Parse(CLI::App& app, std::vector<std::string> arguments, int usage_exit_code) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    Complain(std::string(error.what()) + " (see: caisson " + app.get_name() + " --help)");
    return usage_exit_code;
  }
  return std::nullopt;
}

int TakeSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

std::optional<StopRequest> SignalStop::Take() const {
  struct signalfd_siginfo info {};
  if (::read(signals_.get(), &info, sizeof(info)) != ssize_t{sizeof(info)}) return std::nullopt;
  return StopRequest{static_cast<int>(info.ssi_signo)};
}

Result<UniqueFd> OpenResultFile(const std::string& path) {
  if (path.empty()) return UniqueFd();
  Result<UniqueFd> file = linux_sys::OpenOutput(path, 0);
  if (!file) return std::move(file).error().In("--result");
  return file;
}

Status WriteJson(int fd, const nlohmann::json& document) {
  const std::string text = document.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  // Truncating fails for a pipe or a terminal, which need not be truncated.
  if (::ftruncate(fd, 0) != 0 && errno != EINVAL) return Error::System(errno, "--result: truncate");
  for (size_t written = 0; written < text.size();) {
    const ssize_t size = ::write(fd, text.data() + written, text.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error::System(errno, "--result: write");
    written += static_cast<size_t>(size);
  }
  return {};
}

void Complain(const std::string& message) { std::fprintf(stderr, "caisson: %s\n", EscapeForTerminal(message).c_str()); }

}  // namespace caisson::cli
