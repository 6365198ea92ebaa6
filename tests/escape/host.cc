#include "escape/host.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "escape/canaries.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr char kInsideProgram[] = "/workspace/caisson-selftest";

bool BecomeOrdinaryUser() {
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kOrdinaryId, kOrdinaryId, kOrdinaryId) == 0 &&
         ::setresuid(kOrdinaryId, kOrdinaryId, kOrdinaryId) == 0;
}

// All capabilities, over nothing of the host's.
bool EnterOwnNamespaces() {
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET) != 0) return false;
  return WriteText("/proc/self/setgroups", "deny") && WriteText("/proc/self/uid_map", "0 " + uid + " 1") &&
         WriteText("/proc/self/gid_map", "0 " + gid + " 1") &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

std::string TextOf(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string Text(const json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

bool ResultDocument::Lacks(const std::string& word) const {
  return std::any_of(degraded.begin(), degraded.end(),
                     [&](const std::string& wall) { return wall.find(word) != std::string::npos; });
}

const ReportedViolation* ResultDocument::Find(const std::string& violation_class, const std::string& reason) const {
  for (const ReportedViolation& violation : violations) {
    if (violation.violation_class == violation_class && violation.reason == reason) return &violation;
  }
  return nullptr;
}

std::optional<ResultDocument> ParseResult(const std::string& text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  ResultDocument result;
  result.text = text;
  result.status = Text(document, "status");
  result.failure_class = Text(document, "failure_class");
  result.message = Text(document, "message");
  result.stdout_text = Text(document, "stdout");
  result.stderr_text = Text(document, "stderr");
  if (const auto code = document.find("exit_code"); code != document.end() && code->is_number())
    result.exit_code = code->get<int>();
  if (const auto checks = document.find("checks"); checks != document.end() && checks->is_array() && !checks->empty()) {
    const json& last = checks->back();
    if (last.contains("signal") && last["signal"].is_number()) result.signal = last["signal"].get<int>();
    result.left_processes = last.value("left_processes", false);
  }
  if (const auto isolation = document.find("isolation"); isolation != document.end()) {
    result.host_uid = isolation->value("host_uid", -1L);
    if (isolation->contains("cgroup")) result.cgroup_driver = Text((*isolation)["cgroup"], "driver");
    result.degraded = isolation->value("degraded", std::vector<std::string>());
  }
  result.duration_ms = document.value("duration_ms", int64_t{0});
  if (const auto usage = document.find("usage"); usage != document.end() && usage->is_object()) {
    result.cpu_ms = usage->value("cpu_ms", int64_t{0});
    result.throttled_ms = usage->value("throttled_ms", int64_t{0});
    result.supervisor_cpu_ms = usage->value("supervisor_cpu_ms", int64_t{-1});
  }
  for (const json& entry : document.value("violations", json::array())) {
    ReportedViolation violation{Text(entry, "class"), Text(entry, "reason"), Text(entry, "confidence"), {}};
    const json evidence = entry.value("evidence", json::object());
    for (const auto& [key, value] : evidence.items()) violation.evidence[key] = TextOf(value);
    result.violations.push_back(std::move(violation));
  }
  return result;
}

std::optional<Observation> Outcome::Saw(const std::string& attempt_id) const {
  const std::string start = "PROBE " + attempt_id + " ";
  const size_t line = process.out.rfind(start);
  if (line == std::string::npos || (line > 0 && process.out[line - 1] != '\n')) return std::nullopt;
  const std::string rest = process.out.substr(line + start.size(), process.out.find('\n', line) - line - start.size());
  for (const Seen seen : {Seen::kBlocked, Seen::kEscaped, Seen::kPartial, Seen::kNotApplicable}) {
    const std::string name = std::string(Name(seen)) + " errno=";
    if (rest.rfind(name, 0) != 0) continue;
    const size_t detail = rest.find(" detail=");
    return Observation{seen, std::atoi(rest.c_str() + name.size()),
                       detail == std::string::npos ? "" : rest.substr(detail + 8)};
  }
  return std::nullopt;
}

Host::Host(std::string caisson, std::string runtime) : caisson_(std::move(caisson)), runtime_(std::move(runtime)) {
  std::string name = (fs::temp_directory_path() / "caisson-selftest-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a directory in " + name);
  directory_ = name;
  ::chmod(directory_.c_str(), 0755);
  probe_directory_ = directory_ + "/probe";
  fs::create_directory(probe_directory_);
  ::chmod(probe_directory_.c_str(), 0755);
  selftest_ = probe_directory_ + "/caisson-selftest";
  fs::copy_file("/proc/self/exe", selftest_);
  ::chmod(selftest_.c_str(), 0755);
}

Host::~Host() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

std::vector<pid_t> Host::Descendants(pid_t pid) {
  std::vector<pid_t> found;
  std::istringstream children(ReadText("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  for (pid_t child; children >> child;) {
    found.push_back(child);
    for (const pid_t grandchild : Descendants(child)) found.push_back(grandchild);
  }
  return found;
}

pid_t Host::SupervisorOf(pid_t caisson) {
  const char* launcher = ::getenv("CAISSON_LAUNCHER");
  if (launcher == nullptr) return caisson;
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", launcher);
  const UniqueFd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  struct ucred peer {};
  socklen_t size = sizeof(peer);
  if (::connect(connection.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) != 0 ||
      ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return -1;
  pid_t youngest = -1;
  for (const pid_t pid : Descendants(peer.pid)) {
    if (ReadText("/proc/" + std::to_string(pid) + "/comm") == "caisson-run\n") youngest = pid;
  }
  return youngest;
}

std::string Host::MakeDirectory() {
  const std::string path = directory_ + "/" + std::to_string(counter_++);
  fs::create_directory(path);
  return path;
}

std::string Host::WriteFile(const std::string& name, const std::string& text) {
  const std::string path = MakeDirectory() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<std::string> Host::CommandFor(const std::string& attempt_id, const std::string& program) const {
  const Attempt* attempt = FindAttempt(attempt_id);
  if (attempt != nullptr && !attempt->python.empty()) {
    return {"python3", "-I", "-c", "ATTEMPT = '" + attempt_id + "'\n" + kPythonPrelude + attempt->python};
  }
  return {program, "--probe", attempt_id};
}

std::vector<std::string> Host::ProbeCommand(const std::string& attempt_id) const {
  return CommandFor(attempt_id, kInsideProgram);
}

std::vector<std::string> Host::ControlCommand(const std::string& attempt_id) const {
  return CommandFor(attempt_id, selftest_);
}

void Host::AddRuntime(std::vector<std::string>& argv) const {
  if (runtime_ != "native") argv.insert(argv.end(), {"--runtime", runtime_});
}

Sandbox Host::Start(const SandboxRequest& request) {
  const std::string result_file = MakeDirectory() + "/result.json";
  Command command;
  command.argv = {caisson_, "run", "--quiet", "--result", result_file, "--timeout", "60s", "--memory", "256M"};
  AddRuntime(command.argv);
  if (request.with_probe) command.argv.insert(command.argv.end(), {"--workspace", probe_directory_});
  std::vector<std::pair<std::string, std::string>> env = request.env;
  if (canaries_ != nullptr) {
    for (auto& variable : canaries_->Environment(false)) env.push_back(std::move(variable));
  }
  for (const auto& [key, value] : env) command.argv.insert(command.argv.end(), {"-e", key + "=" + value});
  command.argv.insert(command.argv.end(), request.flags.begin(), request.flags.end());
  command.argv.push_back("--");
  command.argv.insert(command.argv.end(), request.command.begin(), request.command.end());
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!request.open_input) command.standard_input = request.standard_input >= 0 ? request.standard_input : null.get();
  return {Process::Start(command), result_file};
}

Outcome Host::Finish(Sandbox sandbox, int timeout_ms) {
  Outcome run;
  run.process = sandbox.process.Finish(timeout_ms);
  std::ifstream file(sandbox.result_file, std::ios::binary);
  run.result = ParseResult(std::string(std::istreambuf_iterator<char>(file), {}));
  return run;
}

Outcome Host::Run(const SandboxRequest& request, int timeout_ms) { return Finish(Start(request), timeout_ms); }

Outcome Host::Verify(const std::string& request, const std::vector<std::string>& flags, int timeout_ms) {
  Command command;
  command.argv = {caisson_, "verify", "--json", "--local"};
  AddRuntime(command.argv);
  command.argv.insert(command.argv.end(), flags.begin(), flags.end());
  command.argv.push_back(WriteFile("request.json", request));
  Outcome run;
  run.process = Process::Start(command).Finish(timeout_ms);
  run.result = ParseResult(run.process.out);
  return run;
}

Outcome Host::RunControl(const std::string& attempt_id, const Control& control) {
  Command command;
  command.argv = ControlCommand(attempt_id);
  if (canaries_ != nullptr) command.env = canaries_->Environment(true);
  const std::string directory = MakeDirectory();
  ::chmod(directory.c_str(), 0777);
  command.env.emplace_back("CAISSON_CONTROL_DIRECTORY", directory);
  command.directory = directory;
  if (control.place == Place::kOrdinaryUser) command.before_exec = BecomeOrdinaryUser;
  if (control.place == Place::kOwnNamespaces) command.before_exec = EnterOwnNamespaces;
  Outcome run;
  Process process = Process::Start(command);
  run.process = process.Finish(kPatienceMs);
  std::error_code ignored;
  fs::remove_all(directory, ignored);
  return run;
}

}  // namespace caisson::escape
