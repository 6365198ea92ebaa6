// SandboxSpec: the small closed language in which a sandbox can be asked for. What it cannot spell, nobody can ask for:
// there is no way to share the host's users, processes, files or network, keep a capability, skip the filter or mount
// something writable that policy did not open itself.
//
// A Spec is plain data made by runtime/native from a judged plan. Files and directories come as descriptors that policy
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

// How much of a sandbox had been made before its request came, or may have been; each includes the one before it.
enum class Start : uint8_t {
  kCold,         // nothing
  kParked,       // PID 1, behind all walls that no request decides
  kInterpreter,  // the same, forked from an interpreter that serves its commands (sandbox/interpreter.h)
};

enum class Access : uint8_t { kReadOnly, kCopyOnWrite, kReadWrite };

enum class FileKind : uint8_t { kRegular, kSymlink, kDirectory };

// What is written into the workspace before the workload starts.
struct WorkspaceFile {
  std::string path;   // relative, no "." or ".." components; missing parents are made on the way
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

struct Owner {
  uid_t uid;
  gid_t gid;
};

struct Limits {
  int64_t memory_bytes = 0;
  int64_t processes = 0;
  int64_t cpu_millis = 0;
  int64_t output_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t scratch_inodes = 0;
};

struct Command {
  std::vector<std::string> argv;
  std::vector<std::string> env;            // KEY=value, complete: nothing is inherited
  std::string cwd;                         // absolute, inside
  std::optional<std::string> stdin_bytes;  // absent: /dev/null, unless stdio passes through
};

enum class Stdio : uint8_t {
  kCapture,      // keep stdout and stderr for the caller
  kPassThrough,  // copy our stdin, stdout and stderr through, as they come
  kTerminal,     // a pseudo-terminal of the sandbox's own, joined to ours
};

struct Spec {
  std::vector<WorkspaceFile> workspace_files;  // used when there is no workspace mount
  std::optional<Mount> workspace;              // target is /workspace
  bool workspace_files_writable = false;
  std::vector<Mount> mounts;
  // Started by root: whose rights the inside user has over mounted trees. Absent: their owner's, each its own.
  std::optional<Owner> mount_owner;
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
  std::vector<Command> commands;
  Stdio stdio = Stdio::kCapture;
  bool allow_watched_limits = false;  // accept rlimits and sampling where no cgroup can be made
  bool landlock = true;
  bool allow_no_landlock = false;  // accept a kernel without it
  // A refused write is not counted as a violation when a component of its path has one of these names ("__pycache__").
  std::vector<std::string> ignored_write_components;
#ifdef CAISSON_TEST_HOOKS
  std::string fail_step;  // the named set-up step reports EIO instead of running
#endif
};

}  // namespace caisson::sandbox
