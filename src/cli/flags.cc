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

#include "base/units.h"
#include "base/utf8.h"
#include "linux/files.h"
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

}  // namespace

void AddSharedFlags(CLI::App& app, SharedFlags& flags) {
  // The last one counts, so that a script or an alias can bring defaults of its own.
  const auto add_limit = [&](const char* names, std::string& value, const char* help) {
    app.add_option(names, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  add_limit("--memory,-m", flags.memory, "Memory limit, for example 512M; swap is off");
  add_limit("--cpus", flags.cpus, "CPU limit, for example 1.5 or 500m");
  add_limit("--pids-limit", flags.pids, "Most processes and threads at once");
  add_limit("--timeout", flags.timeout, "Time limit of a command, for example 30s");
  add_limit("--output-limit", flags.output_limit, "Most bytes of output, for example 10M");
  add_limit("--scratch", flags.scratch, "Size of /scratch, for example 512M");
  app.add_option("--network", flags.network, "none: only the sandbox's own loopback");
  app.add_option("--allow-domain", flags.allow_domains, "Allow a host (needs a runtime with network)");
  app.add_option("--profile", flags.profile, "Isolation profile, by name or FILE.yaml; default: the mode's");
  app.add_option("--profiles", flags.profiles, "Directory of your own profiles; default /etc/caisson/profiles");
  app.add_option("--policy", flags.policy, "Rules for risk and overrides; default /etc/caisson/policy.yaml, if any");
  app.add_option("--role", flags.role, "The role whose overrides apply; default operator");
  app.add_option("--approve", flags.approve, "RULE: approve, as yourself, what that rule of the policy asks for")
      ->allow_extra_args(false);
  app.add_option("--mode", flags.mode, "balanced or strict")->check(CLI::IsMember({"balanced", "strict"}));
  app.add_option("--events", flags.events, "Write lifecycle events, one JSON object a line, to FILE or -");
  app.add_option("--audit", flags.audit, "Append what was decided, before it is done, to the audit log FILE");
  app.add_option("--result", flags.result, "Write the result document to FILE");
  app.add_flag("--json", flags.json, "Print the result document, and nothing else, on standard output");
  app.add_flag("--quiet,-q", flags.quiet, "Say nothing but errors");
  app.add_flag("--dry-run", flags.dry_run, "Print the effective plan as JSON and stop");
}

Result<verify::OperatorLimits> ReadLimits(const SharedFlags& flags) {
  verify::OperatorLimits limits;
  CAISSON_TRY_VOID(ReadLimit("--memory", flags.memory, ParseSize, policy::kMinMemoryBytes, limits.memory_bytes));
  CAISSON_TRY_VOID(ReadLimit("--cpus", flags.cpus, ParseCpus, 10, limits.cpu_millis));
  CAISSON_TRY_VOID(ReadLimit("--pids-limit", flags.pids, ParseCount, 1, limits.processes));
  CAISSON_TRY_VOID(ReadLimit("--timeout", flags.timeout, ParseDuration, 1, limits.command_timeout_ms));
  CAISSON_TRY_VOID(ReadLimit("--output-limit", flags.output_limit, ParseSize, 1, limits.output_bytes));
  CAISSON_TRY_VOID(ReadLimit("--scratch", flags.scratch, ParseSize, 4096, limits.scratch_bytes));
  if (limits.processes && *limits.processes > policy::kMaxProcesses)
    return Error::Invalid("--pids-limit: more than Linux can number (" + std::to_string(policy::kMaxProcesses) + ")");
  if (limits.command_timeout_ms && *limits.command_timeout_ms > policy::kMaxTimeoutMs)
    return Error::Invalid("--timeout: longer than a year");
  if (limits.cpu_millis && *limits.cpu_millis > int64_t{1000} * ::sysconf(_SC_NPROCESSORS_ONLN)) {
    return Error::Invalid("--cpus: this machine has " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  return limits;
}

Result<verify::Authority> ReadAuthority(const SharedFlags& flags) {
  constexpr char kInstalled[] = "/etc/caisson/policy.yaml";
  verify::Authority authority;
  std::string policy = flags.policy;
  if (policy.empty() && ::access(kInstalled, F_OK) == 0) policy = kInstalled;
  if (!policy.empty()) {
    CAISSON_TRY(authority.rules, policy::LoadRules(policy));
  }
  if (!flags.profiles.empty()) authority.profiles = policy::ProfileStore(flags.profiles);
  authority.profile = flags.profile;
  authority.role = flags.role;
  authority.approved_rules = flags.approve;
  CAISSON_TRY(authority.limits, ReadLimits(flags));
  return authority;
}

Status RefuseNetwork(const SharedFlags& flags) {
  if (flags.network != "none") return Error::Denied("--network: this runtime offers only none");
  if (!flags.allow_domains.empty()) return Error::Denied("--allow-domain: this runtime offers no network");
  return {};
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
  if (const auto fault = verify::FaultInMountTarget(mount.target))
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

Result<UniqueFd> OpenResultFile(const std::string& path) {
  if (path.empty()) return UniqueFd();
  Result<UniqueFd> file = linux_sys::OpenOutput(path, 0);
  if (!file) return std::move(file).error().In("--result");
  return file;
}

Status WriteJson(int fd, const nlohmann::json& document) {
  const std::string text = document.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  // A pipe or a terminal cannot be truncated and need not be.
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
