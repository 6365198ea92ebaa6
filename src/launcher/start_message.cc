// kStart: a Spec on the wire. Everything that the core takes for granted of a Spec is checked here, because here it may
// come from somebody hostile; what passes is as good as what runtime/native makes.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "launcher/messages.h"
#include "linux/syscall_names.h"

namespace caisson::launcher {

namespace {

using sandbox::Command;
using sandbox::Mount;
using sandbox::Spec;

constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kMaxArgumentBytes = size_t{2} << 20;
constexpr size_t kMaxArguments = 65'536;
constexpr size_t kMaxFiles = 1'000'000;
constexpr size_t kMaxMounts = 128;
constexpr size_t kMaxPaths = 1024;
constexpr size_t kMaxCommands = 256;
constexpr size_t kMaxHostNameBytes = 63;
// A supervisor keeps captured output in its own memory, which no cgroup of the sandbox bounds.
constexpr int64_t kMaxCapturedBytes = int64_t{1} << 30;
// Sums and products of these stay within 64 bits.
constexpr int64_t kMaxLimitBytes = int64_t{1} << 50;
constexpr int64_t kMaxProcesses = int64_t{1} << 22;
constexpr int64_t kMaxCpuMillis = int64_t{65'536} * 1000;
constexpr int64_t kMaxInodes = int64_t{1} << 32;

constexpr std::array kDevices = {"null", "zero", "full", "random", "urandom"};
// Beside what the Spec itself shows of the host.
constexpr std::array kOwnTrees = {"/proc", "/dev", "/sys", "/etc"};

bool HasNoNul(std::string_view text) { return text.find('\0') == std::string_view::npos; }

bool IsWord(std::string_view text) { return !text.empty() && HasNoNul(text) && text.find('/') == text.npos; }

bool IsDevice(std::string_view text) { return std::find(kDevices.begin(), kDevices.end(), text) != kDevices.end(); }

// SECURITY: steps resolve these below a directory of theirs while the host's tree still has a name; a ".." would lead
// there.
bool IsCleanRelativePath(std::string_view path) {
  if (path.empty() || !HasNoNul(path)) return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view component = path.substr(start, end - start);
    if (component.empty() || component == "." || component == ".." || component.size() > kMaxNameBytes) return false;
    start = end + 1;
  }
  return true;
}

bool IsCleanAbsolutePath(std::string_view path) {
  return !path.empty() && path[0] == '/' && IsCleanRelativePath(path.substr(1));
}

bool IsAbsolutePath(std::string_view path) { return !path.empty() && path[0] == '/' && HasNoNul(path); }

bool IsWorkspace(std::string_view path) { return path == "/workspace"; }

bool IsAtOrBelow(std::string_view path, std::string_view directory) {
  return path.substr(0, directory.size()) == directory &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

template <typename Side, typename Paths>
void DescribePaths(Side& side, const char* field, Paths& paths, Rule rule) {
  side.List(field, paths, kMaxPaths, [&](auto& path) { side.Text("path", path, kMaxPathBytes, rule); });
}

template <typename Side, typename M>
void DescribeMount(Side& side, M& mount, Rule target) {
  side.Descriptor("source", mount.source);
  side.Text("source_path", mount.source_path, kMaxPathBytes, IsAbsolutePath);
  side.Text("target", mount.target, kMaxPathBytes, target);
  side.Choice("access", mount.access, sandbox::Access::kReadWrite);
}

template <typename Side, typename C>
void DescribeCommand(Side& side, C& command) {
  side.List("argv", command.argv, kMaxArguments,
            [&](auto& argument) { side.Text("argument", argument, kMaxArgumentBytes, HasNoNul); });
  side.List("env", command.env, kMaxArguments,
            [&](auto& variable) { side.Text("variable", variable, kMaxArgumentBytes, HasNoNul); });
  side.Text("cwd", command.cwd, kMaxPathBytes, IsAbsolutePath);
  side.Maybe("stdin", command.stdin_bytes, [&](auto& bytes) { side.Text("bytes", bytes, kMaxFileBytes); });
}

template <typename Side, typename L>
void DescribeLimits(Side& side, L& limits) {
  side.Number("memory_bytes", limits.memory_bytes, 1, kMaxLimitBytes);
  side.Number("processes", limits.processes, 1, kMaxProcesses);
  side.Number("cpu_millis", limits.cpu_millis, 1, kMaxCpuMillis);
  side.Number("output_bytes", limits.output_bytes, 1, kMaxLimitBytes);
  side.Number("scratch_bytes", limits.scratch_bytes, 1, kMaxLimitBytes);
  side.Number("scratch_inodes", limits.scratch_inodes, 1, kMaxInodes);
}

// Filters travel by name, so there are only those that were built in.
template <typename Side, typename Program>
void DescribeProgram(Side& side, const char* field, Program& program) {
  std::string name = program != nullptr ? program->name : "";
  side.Text(field, name, kMaxNameBytes, HasNoNul);
  if constexpr (Side::kReads) {
    program = name.empty() ? nullptr : sandbox::FindSeccompProgram(name.c_str());
    if (program == nullptr && !name.empty()) side.Fail(field, "there is no such filter");
  }
}

template <typename Side, typename Numbers>
void DescribeCalls(Side& side, const char* field, Numbers& numbers) {
  side.List(field, numbers, linux_sys::kSyscallNumberEnd,
            [&](auto& number) { side.Number("number", number, 0, linux_sys::kSyscallNumberEnd - 1); });
}

template <typename Side, typename S>
void DescribeSpec(Side& side, S& spec) {
  side.List("workspace_files", spec.workspace_files, kMaxFiles, [&](auto& file) {
    side.Text("path", file.path, kMaxPathBytes, IsCleanRelativePath);
    side.Choice("kind", file.kind, sandbox::FileKind::kDirectory);
    side.Text("bytes", file.bytes, kMaxFileBytes);
    side.Number("mode", file.mode, 0, 0777);
  });
  side.Maybe("workspace", spec.workspace, [&](auto& mount) { DescribeMount(side, mount, IsWorkspace); });
  side.Flag("workspace_files_writable", spec.workspace_files_writable);
  side.List("mounts", spec.mounts, kMaxMounts, [&](auto& mount) { DescribeMount(side, mount, IsCleanAbsolutePath); });
  DescribePaths(side, "system_paths", spec.system_paths, IsCleanAbsolutePath);
  DescribePaths(side, "etc_paths", spec.etc_paths, IsCleanAbsolutePath);
  side.List("devices", spec.devices, kDevices.size(),
            [&](auto& name) { side.Text("name", name, kMaxNameBytes, IsDevice); });
  side.Flag("writable_tmp", spec.writable_tmp);
  side.Flag("writable_shm", spec.writable_shm);
  DescribePaths(side, "masked_files", spec.masked_files, IsCleanRelativePath);
  DescribePaths(side, "masked_directories", spec.masked_directories, IsCleanRelativePath);
  side.Flag("proc_pids_only", spec.proc_pids_only);
  side.Flag("share_ipc", spec.share_ipc);
  side.Flag("share_uts", spec.share_uts);
  side.Flag("share_cgroup", spec.share_cgroup);
  side.Flag("share_time", spec.share_time);
  side.Text("hostname", spec.hostname, kMaxHostNameBytes, IsWord);
  DescribeLimits(side, spec.limits);
  DescribeProgram(side, "seccomp", spec.seccomp);
  DescribeProgram(side, "seccomp_watched", spec.seccomp_watched);
  DescribeCalls(side, "allowed_calls", spec.allowed_calls);
  DescribeCalls(side, "denied_calls", spec.denied_calls);
  side.List("commands", spec.commands, kMaxCommands, [&](auto& command) { DescribeCommand(side, command); });
  side.Choice("stdio", spec.stdio, sandbox::Stdio::kTerminal);
  side.Flag("allow_watched_limits", spec.allow_watched_limits);
  side.Flag("landlock", spec.landlock);
  side.Flag("allow_no_landlock", spec.allow_no_landlock);
  side.List("ignored_write_components", spec.ignored_write_components, kMaxPaths,
            [&](auto& name) { side.Text("name", name, kMaxNameBytes, IsWord); });
}

template <typename Side, typename Message>
void DescribeStart(Side& side, Message& message) {
  DescribeSpec(side, message.spec);
  side.List("streams", message.streams, 3, [&](auto& stream) { side.Descriptor("stream", stream); });
}

// SECURITY: files are made one after the other below a directory of ours; one whose way leads through a link made just
// before would be made where the link points.
const std::string* FindFileThroughFile(const Spec& spec) {
  std::vector<std::string_view> closed;
  for (const sandbox::WorkspaceFile& file : spec.workspace_files) {
    if (file.kind != sandbox::FileKind::kDirectory) closed.push_back(file.path);
  }
  std::sort(closed.begin(), closed.end());
  for (const sandbox::WorkspaceFile& file : spec.workspace_files) {
    const std::string_view path = file.path;
    for (size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
      if (std::binary_search(closed.begin(), closed.end(), path.substr(0, slash))) return &file.path;
    }
  }
  return nullptr;
}

// What one field cannot say about itself.
Status CheckWhole(const StartMessage& message) {
  const Spec& spec = message.spec;
  if (spec.seccomp == nullptr) return Error::Invalid("start.seccomp: a filter is needed");
  if (spec.commands.empty()) return Error::Invalid("start.commands: at least one is needed");
  for (const Command& command : spec.commands) {
    if (command.argv.empty() || command.argv[0].empty())
      return Error::Invalid("start.commands.argv: the program is not named");
  }
  if (const std::string* path = FindFileThroughFile(spec))
    return Error::Invalid("start.workspace_files: " + EscapeForTerminal(*path) +
                          " is below something that is not a directory");
  for (const Mount& mount : spec.mounts) {
    const auto covers = [&](std::string_view tree) { return IsAtOrBelow(mount.target, tree); };
    if (std::any_of(kOwnTrees.begin(), kOwnTrees.end(), covers) ||
        std::any_of(spec.system_paths.begin(), spec.system_paths.end(), covers))
      return Error::Invalid("start.mounts: the target " + EscapeForTerminal(mount.target) +
                            " lies in a tree that the sandbox makes");
  }
  const bool captured = spec.stdio == sandbox::Stdio::kCapture;
  if (captured && spec.limits.output_bytes > kMaxCapturedBytes)
    return Error::Invalid("start.output_bytes: a launcher captures at most " + std::to_string(kMaxCapturedBytes));
  if (message.streams.size() != (captured ? 0U : 3U))
    return Error::Invalid("start.streams: three where they pass through, else none");
  return {};
}

}  // namespace

Result<Encoded> Encode(const StartMessage& message) {
  CAISSON_TRY_VOID(CheckWhole(message));
  Writer writer("start");
  DescribeStart(writer, message);
  return writer.Finish();
}

Result<Encoded> Encode(const Spec& spec) {
  Writer writer("spec");
  DescribeSpec(writer, spec);
  return writer.Finish();
}

Result<Spec> DecodeSpec(std::string_view bytes, std::vector<UniqueFd> fds) {
  Reader reader("spec", bytes, std::move(fds));
  Spec spec;
  DescribeSpec(reader, spec);
  CAISSON_TRY_VOID(reader.Finish());
  return spec;
}

Result<StartMessage> DecodeStart(std::string_view bytes, std::vector<UniqueFd> fds) {
  Reader reader("start", bytes, std::move(fds));
  StartMessage message;
  DescribeStart(reader, message);
  CAISSON_TRY_VOID(reader.Finish());
  CAISSON_TRY_VOID(CheckWhole(message));
  return message;
}

}  // namespace caisson::launcher
