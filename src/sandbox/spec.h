// SandboxSpec: the small closed language that describes a sandbox. A caller cannot ask for anything that the language
// cannot express: it has no way to share the host's users, processes, files or network, keep a capability, skip the
// filter or mount something writable that policy did not open itself.
//
// A Spec is plain data that runtime/native makes from a judged plan. Files and directories are descriptors that policy
// opened and judged; the core mounts exactly those.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sandbox/seccomp_program.h"

namespace caisson::sandbox {

// How much of a sandbox existed, or may have existed, before its request; each value includes the one before it.
enum class Start : uint8_t {
  kCold,         // PID 1, behind all walls that do not depend on the request
  kParked,       // PID 1, behind all walls that no request decides
  kInterpreter,  // the same, forked from an interpreter that serves its commands (sandbox/warm_interpreter.h)
};

enum class Access : uint8_t { kReadOnly, kCopyOnWrite, kReadWrite };

enum class FileKind : uint8_t { kRegular, kSymlink, kDirectory };

// A file to create in the workspace before the workload starts.
struct WorkspaceFile {
  std::string path;   // relative, no "." or ".." components; missing parents are created
  std::string bytes;  // contents, or the target of a symbolic link
  mode_t mode = 0644;
  FileKind kind = FileKind::kRegular;
};

struct Mount {
  UniqueFd source;          // O_PATH, as judged
  std::string source_path;  // canonical; reopened and compared with `source` where descriptors cannot cross namespaces
  std::string target;       // absolute, inside
  Access access = Access::kReadOnly;
};

// A directory of the caller's on disk with the subdirectories `upper` and `work`, which keeps what is changed in a
// copy-on-write workspace.
struct Layer {
  UniqueFd source;          // O_PATH
  std::string source_path;  // as Mount::source_path
};

struct Owner {
  uid_t uid;
  gid_t gid;
};

// How a sandbox shows an entry of a root image's top directory.
enum class RootEntryKind : uint8_t {
  kTree,    // a directory, mounted
  kFile,    // a regular file, mounted
  kEmpty,   // a directory without entries: made, so that something may be mounted below it
  kLink,    // a symbolic link, made
  kMerged,  // "etc" and "var": below the files of the sandbox's own
};

struct RootEntry {
  std::string name;  // one component; none of the directories that every sandbox has of its own
  RootEntryKind kind = RootEntryKind::kTree;
  std::string target;  // of a link
};

// A tree that replaces the host's programs. Its files must be readable for all users: they are shown with the owners
// they have, so the inside user has the rights of others. The core mounts it read-only and without set-user-id.
struct RootImage {
  UniqueFd source;          // the directory, opened by the image store; may carry the store's lock
  std::string source_path;  // canonical; as for Mount
  std::vector<RootEntry> entries;
};

struct Limits {
  int64_t memory_bytes = 0;
  int64_t processes = 0;
  int64_t cpu_millis = 0;
  int64_t output_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t scratch_inodes = 0;
  int64_t cpu_time_ms = 0;  // of one command; 0: not limited
  int64_t stack_bytes = int64_t{8} << 20;
};

// A command to run inside once the walls stand. Not part of a Spec: a sandbox is created once and runs commands as long
// as it lives.
struct Command {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // KEY=value, complete: nothing is inherited
  std::string cwd;               // absolute, inside
};

// A refused attempt that is a notice and not a violation (sandbox/probes.h). Exactly one of `reason` and `path` is set.
struct Probe {
  std::string reason;  // of denied system calls
  std::string path;    // absolute, inside: opening for writing or creating a file at or below it
  std::string why;     // for the reader of the result
};

// A rule that allows or denies destinations. The core passes it to the egress process without reading it.
struct NetworkRule {
  bool allow = true;
  std::string text;
  std::string label;  // how evidence names it
};

// A name that resolves without DNS, like a line of /etc/hosts.
struct NetworkHost {
  std::string name;
  std::string address;
};

// A port of the sandbox's loopback that can be reached from outside.
struct PortForward {
  UniqueFd listener;  // a listening TCP socket, made with the rights of the caller
  uint16_t port = 0;  // of the listener, for the record
  uint16_t inside_port = 0;
};

// A secret that the egress process puts into requests to one host. The core passes it on without reading it.
struct NetworkCredential {
  std::string name;
  std::string host;
  uint16_t port = 443;
  std::string path = "/";
  std::string header;
  std::string value;        // with "{secret}", where the header is added; empty: only the placeholder is replaced
  std::string placeholder;  // what stands for the secret inside
  std::string methods;      // separated by spaces; empty: all
  std::string paths;        // likewise
  bool git_read_only = false;
  UniqueFd secret;             // a readable file
  std::optional<UniqueFd> ca;  // certificates that are trusted for this host besides the machine's
};

// The destinations that a sandbox may reach, through caisson-egress (docs/design/egress.md).
struct Network {
  uint32_t pool = 0xC6120000;  // 198.18.0.0: the first of the addresses that stand for names inside
  uint8_t pool_bits = 15;
  std::vector<NetworkRule> rules;
  std::vector<uint32_t> addresses;          // IPv4 addresses, in host order, that rules name: they exist inside
  std::vector<std::string> private_ranges;  // may be dialled although their addresses are not public
  std::vector<NetworkHost> hosts;
  std::vector<uint16_t> host_ports;  // of the host's loopback: each is reached inside at 127.0.0.1 and the same port
  std::vector<PortForward> forwards;
  std::vector<NetworkCredential> credentials;
  bool attended = false;                  // commands run with a NetworkAsker
  uint32_t ask_ms = 60'000;               // how long a question waits for its answer
  uint32_t max_connections = 256;         // at a time
  uint32_t connections_per_second = 100;  // new ones
  uint64_t max_bytes = 0;                 // both ways, of the whole run; 0: no limit
  uint64_t bytes_per_second = 0;          // 0: no limit
};

// Where Spec::trust_bundle is shown, besides the places where distributions keep theirs.
inline constexpr char kTrustBundlePath[] = "/etc/caisson/trust.pem";

struct Spec {
  std::vector<WorkspaceFile> workspace_files;  // used when there is no workspace mount
  std::optional<Mount> workspace;              // target is /workspace
  std::optional<Layer> workspace_layer;        // of a copy-on-write workspace; absent: changes are kept in scratch
  bool workspace_files_writable = false;
  std::vector<Mount> mounts;
  // Started by root: the user whose rights the inside user has over mounted trees. Absent: the owner of each tree.
  std::optional<Owner> mount_owner;
  std::optional<RootImage> root;          // absent: the programs are those of system_paths
  std::vector<std::string> system_paths;  // host trees shown read-only at the same place, where they exist
  std::vector<std::string> etc_paths;     // the same, below /etc
  std::vector<std::string> devices;       // names below /dev; "null" is one of them
  bool writable_tmp = true;               // /tmp, as part of scratch
  bool writable_shm = true;               // /dev/shm, likewise
  std::vector<std::string> masked_files;  // relative to /proc
  std::vector<std::string> masked_directories;
  bool proc_pids_only = false;  // mount /proc with subset=pid
  // Namespaces shared with the host: any of ipc, uts, cgroup and time, none of which guards files, processes or the
  // network. The report of what was applied leaves them out.
  bool share_ipc = false, share_uts = false, share_cgroup = false, share_time = false;
  std::string hostname = "caisson";
  Limits limits;
  const SeccompProgram* seccomp = nullptr;
  const SeccompProgram* seccomp_watched = nullptr;  // used instead where no cgroup counts processes
  std::vector<int32_t> allowed_calls;               // let through before the filter is asked
  std::vector<int32_t> denied_calls;                // refused and recorded before the filter is asked
  bool allow_watched_limits = false;                // accept rlimits and sampling where no cgroup can be made
  bool landlock = true;
  bool allow_no_landlock = false;  // accept a kernel without it
  // A refused write is not counted as a violation when a component of its path has one of these names ("__pycache__").
  std::vector<std::string> ignored_write_components;
  std::vector<Probe> probes;
  std::optional<Network> network;  // absent: nothing but loopback
  // Commands will run side by side for a long time (sandbox/live_supervision.h): when memory runs out, the kernel ends
  // one process and not all of them.
  bool live = false;
  // Certificates that programs inside trust, in one file; empty: none is shown. Filled in by the core where there is a
  // network.
  std::string trust_bundle;
#ifdef CAISSON_TEST_HOOKS
  std::string fail_step;  // the named set-up step reports EIO instead of running
#endif
};

}  // namespace caisson::sandbox
