// kStart: a Spec on the wire. This file checks every property of a Spec that the core relies on, because the sender may
// be hostile. A Spec that passes is as trustworthy as one that runtime/native makes.
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

using sandbox::Mount;
using sandbox::Spec;

constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kMaxFiles = 1'000'000;
constexpr size_t kMaxMounts = 128;
constexpr size_t kMaxPaths = 1024;
constexpr size_t kMaxHostNameBytes = 63;
// Bounds chosen so that sums and products of these values stay within 64 bits.
constexpr int64_t kMaxLimitBytes = int64_t{1} << 50;
constexpr int64_t kMaxProcesses = int64_t{1} << 22;
constexpr int64_t kMaxCpuMillis = int64_t{65'536} * 1000;
constexpr int64_t kMaxInodes = int64_t{1} << 32;
constexpr int64_t kMaxCpuTimeMs = int64_t{366} * 24 * 3600 * 1000;

constexpr size_t kMaxNetworkRules = 4096;
constexpr size_t kMaxNetworkAddresses = 256;
constexpr size_t kMaxNetworkText = 1024;
constexpr size_t kMaxPorts = 64;
constexpr size_t kMaxCredentials = 32;
constexpr int64_t kMaxNetworkConnections = 4096, kMaxNetworkRate = 100'000;
constexpr size_t kMaxTrustBytes = size_t{1} << 20;
constexpr int64_t kMinPoolBits = 8, kMaxPoolBits = 28;

constexpr size_t kMaxRootEntries = 256;

constexpr std::array kDevices = {"null", "zero", "full", "random", "urandom"};
// Trees that the sandbox creates itself, in addition to the parts of the host that the Spec shows.
constexpr std::array kOwnTrees = {"/proc", "/dev", "/sys", "/etc"};

bool HasNoNul(std::string_view text) { return text.find('\0') == std::string_view::npos; }

bool IsWord(std::string_view text) { return !text.empty() && HasNoNul(text) && text.find('/') == text.npos; }

bool IsDevice(std::string_view text) { return std::find(kDevices.begin(), kDevices.end(), text) != kDevices.end(); }

// SECURITY: set-up steps resolve these paths below a directory of their own while the host's tree is still reachable; a
// ".." would lead to the host's tree.
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

// A name in the top directory of a root image. SECURITY: those that the sandbox makes itself are not the image's.
bool IsRootEntryName(std::string_view name) {
  constexpr std::array kReserved = {"dev", "proc", "sys", "tmp", "scratch", "workspace", "run", ".cover"};
  return IsWord(name) && IsCleanRelativePath(name) &&
         std::find(kReserved.begin(), kReserved.end(), name) == kReserved.end();
}

template <typename Side, typename R>
void DescribeRoot(Side& side, R& root) {
  side.Descriptor("source", root.source);
  side.Text("source_path", root.source_path, kMaxPathBytes, IsAbsolutePath);
  side.List("entries", root.entries, kMaxRootEntries, [&](auto& entry) {
    side.Text("name", entry.name, kMaxNameBytes, IsRootEntryName);
    side.Choice("kind", entry.kind, sandbox::RootEntryKind::kMerged);
    side.Text("target", entry.target, kMaxPathBytes, HasNoNul);
  });
}

template <typename Side, typename L>
void DescribeLimits(Side& side, L& limits) {
  side.Number("memory_bytes", limits.memory_bytes, 1, kMaxLimitBytes);
  side.Number("processes", limits.processes, 1, kMaxProcesses);
  side.Number("cpu_millis", limits.cpu_millis, 1, kMaxCpuMillis);
  side.Number("output_bytes", limits.output_bytes, 1, kMaxLimitBytes);
  side.Number("scratch_bytes", limits.scratch_bytes, 1, kMaxLimitBytes);
  side.Number("scratch_inodes", limits.scratch_inodes, 1, kMaxInodes);
  side.Number("cpu_time_ms", limits.cpu_time_ms, 0, kMaxCpuTimeMs);
  side.Number("stack_bytes", limits.stack_bytes, 1, kMaxLimitBytes);
}

// Filters are sent by name, so only built-in filters can be used.
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

// The egress process parses rules, ranges and host entries, and refuses those that it does not understand.
bool IsNetworkText(std::string_view text) { return !text.empty() && HasNoNul(text); }

template <typename Side, typename N>
void DescribeNetwork(Side& side, N& network) {
  side.Number("pool", network.pool, 0, std::numeric_limits<uint32_t>::max());
  side.Number("pool_bits", network.pool_bits, kMinPoolBits, kMaxPoolBits);
  side.List("rules", network.rules, kMaxNetworkRules, [&](auto& rule) {
    side.Flag("allow", rule.allow);
    side.Text("text", rule.text, kMaxNetworkText, IsNetworkText);
    side.Text("label", rule.label, kMaxNetworkText, HasNoNul);
  });
  side.List("addresses", network.addresses, kMaxNetworkAddresses,
            [&](auto& address) { side.Number("address", address, 0, std::numeric_limits<uint32_t>::max()); });
  side.List("private_ranges", network.private_ranges, kMaxNetworkAddresses,
            [&](auto& range) { side.Text("range", range, kMaxNetworkText, IsNetworkText); });
  side.List("hosts", network.hosts, kMaxNetworkRules, [&](auto& host) {
    side.Text("name", host.name, kMaxNetworkText, IsNetworkText);
    side.Text("address", host.address, kMaxNetworkText, IsNetworkText);
  });
  side.List("host_ports", network.host_ports, kMaxPorts, [&](auto& port) { side.Number("port", port, 1, 65535); });
  side.List("forwards", network.forwards, kMaxPorts, [&](auto& forward) {
    side.Descriptor("listener", forward.listener);
    side.Number("port", forward.port, 1, 65535);
    side.Number("inside_port", forward.inside_port, 1, 65535);
  });
  side.Number("max_connections", network.max_connections, 1, kMaxNetworkConnections);
  side.Number("connections_per_second", network.connections_per_second, 1, kMaxNetworkRate);
  side.Number("max_bytes", network.max_bytes, 0, kMaxLimitBytes);
  side.Number("bytes_per_second", network.bytes_per_second, 0, kMaxLimitBytes);
  side.List("credentials", network.credentials, kMaxCredentials, [&](auto& one) {
    side.Text("name", one.name, kMaxNetworkText, IsNetworkText);
    side.Text("host", one.host, kMaxNetworkText, IsNetworkText);
    side.Number("port", one.port, 1, 65535);
    side.Text("path", one.path, kMaxNetworkText, IsNetworkText);
    side.Text("header", one.header, kMaxNetworkText, IsNetworkText);
    side.Text("value", one.value, kMaxNetworkText, HasNoNul);
    side.Text("placeholder", one.placeholder, kMaxNetworkText, IsNetworkText);
    side.Text("methods", one.methods, kMaxNetworkText, HasNoNul);
    side.Text("paths", one.paths, kMaxNetworkText, HasNoNul);
    side.Flag("git_read_only", one.git_read_only);
    side.Descriptor("secret", one.secret);
    side.Maybe("ca", one.ca, [&](auto& ca) { side.Descriptor("ca", ca); });
  });
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
  side.Maybe("root", spec.root, [&](auto& root) { DescribeRoot(side, root); });
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
  side.Flag("allow_watched_limits", spec.allow_watched_limits);
  side.Flag("landlock", spec.landlock);
  side.Flag("allow_no_landlock", spec.allow_no_landlock);
  side.List("ignored_write_components", spec.ignored_write_components, kMaxPaths,
            [&](auto& name) { side.Text("name", name, kMaxNameBytes, IsWord); });
  side.List("probes", spec.probes, kMaxPaths, [&](auto& probe) {
    side.Text("reason", probe.reason, kMaxNameBytes);
    side.Text("path", probe.path, kMaxPathBytes);
    side.Text("why", probe.why, kMaxNameBytes);
  });
  side.Text("trust_bundle", spec.trust_bundle, kMaxTrustBytes, HasNoNul);
  side.Maybe("network", spec.network, [&](auto& network) { DescribeNetwork(side, network); });
}

// SECURITY: files are created one after the other below a directory of ours. A file whose path leads through a link
// that was created just before would be created at the link's target.
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

// SECURITY: these addresses exist only inside the sandbox, so any address is allowed except those that already have a
// meaning there.
bool MayStandInside(uint32_t address) {
  return address >> 24 != 0 && address >> 24 != 127 && address >> 28 < 0xe;  // no loopback, no multicast, not reserved
}

Status CheckNetwork(const sandbox::Network& network) {
  const uint64_t size = uint64_t{1} << (32 - network.pool_bits);
  if (network.pool % size != 0 || !MayStandInside(network.pool) ||
      !MayStandInside(static_cast<uint32_t>(network.pool + size - 1)))
    return Error::Invalid("start.network.pool: not a range of addresses that a sandbox can have");
  for (const uint32_t address : network.addresses) {
    if (!MayStandInside(address)) return Error::Invalid("start.network.addresses: one that a sandbox cannot have");
  }
  return {};
}

Status CheckRoot(const sandbox::RootImage& root) {
  for (const sandbox::RootEntry& entry : root.entries) {
    const bool merged = entry.kind == sandbox::RootEntryKind::kMerged;
    if ((entry.name == "etc" || entry.name == "var") != merged)
      return Error::Invalid("start.root.entries: etc and var, and nothing else, are merged");
    if ((entry.kind == sandbox::RootEntryKind::kLink) == entry.target.empty())
      return Error::Invalid("start.root.entries: a link, and nothing else, has a target");
  }
  return {};
}

// Checks rules that involve more than one field.
Status CheckWhole(const Spec& spec) {
  if (spec.root) CAISSON_TRY_VOID(CheckRoot(*spec.root));
  if (spec.seccomp == nullptr) return Error::Invalid("start.seccomp: a filter is needed");
  if (const std::string* path = FindFileThroughFile(spec))
    return Error::Invalid("start.workspace_files: " + EscapeForTerminal(*path) +
                          " is below something that is not a directory");
  if (spec.network) CAISSON_TRY_VOID(CheckNetwork(*spec.network));
  for (const Mount& mount : spec.mounts) {
    const auto covers = [&](std::string_view tree) { return IsAtOrBelow(mount.target, tree); };
    if (std::any_of(kOwnTrees.begin(), kOwnTrees.end(), covers) ||
        std::any_of(spec.system_paths.begin(), spec.system_paths.end(), covers))
      return Error::Invalid("start.mounts: the target " + EscapeForTerminal(mount.target) +
                            " lies in a tree that the sandbox makes");
  }
  return {};
}

}  // namespace

Result<Encoded> EncodeStart(const Spec& spec) {
  CAISSON_TRY_VOID(CheckWhole(spec));
  return Encode(spec);
}

Result<Encoded> Encode(const Spec& spec) {
  Writer writer("start");
  DescribeSpec(writer, spec);
  return writer.Finish();
}

Result<Spec> DecodeSpec(std::string_view bytes, std::vector<UniqueFd> fds) {
  Reader reader("start", bytes, std::move(fds));
  Spec spec;
  DescribeSpec(reader, spec);
  CAISSON_TRY_VOID(reader.Finish());
  return spec;
}

Result<Spec> DecodeStart(std::string_view bytes, std::vector<UniqueFd> fds) {
  CAISSON_TRY(Spec spec, DecodeSpec(bytes, std::move(fds)));
  CAISSON_TRY_VOID(CheckWhole(spec));
  return spec;
}

}  // namespace caisson::launcher
