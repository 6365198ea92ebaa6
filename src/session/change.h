// One difference between a session's tree and the project directory, and the whole list of them.
//
// Everything here comes from a tree that untrusted code wrote. Paths and link targets are bytes: they may hold any byte
// but NUL, and must be printed with QuotedPath or through DiffToJson, never raw.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::session {

enum class EntryType : uint8_t { kAbsent, kFile, kDirectory, kLink, kFifo, kSocket, kDevice };
inline constexpr std::array<const char*, 7> kEntryTypeNames = {"absent", "file",   "directory", "link",
                                                               "fifo",   "socket", "device"};

enum class ChangeKind : uint8_t {
  kAdded,
  kModified,  // the bytes of a file or the target of a link; the mode may have changed too
  kDeleted,
  kMode,  // the permission bits alone
  kType,  // a file became a link, a directory became a file, …
};
inline constexpr std::array<const char*, 5> kChangeKindNames = {"added", "modified", "deleted", "mode", "type"};

// Why a person should look twice: none of these is forbidden, but each can make the user's own programs run something.
enum class ChangeFlag : uint8_t {
  kExecutableGained,    // a file that was not executable, or did not exist, is executable now
  kLinkLeavesTree,      // a symbolic link that leads out of the project, or may lead out of it
  kGit,                 // .git and below, .gitmodules, .gitattributes
  kBareRepository,      // HEAD beside objects/ and refs/: git takes the directory for a repository and obeys its config
  kHook,                // .githooks, .husky, pre-commit's and lefthook's configuration
  kEnvironmentFile,     // .envrc, .env, shell and tool-version files
  kEditor,              // .vscode, .idea, .devcontainer, .vimrc and their like
  kAgentConfiguration,  // .mcp.json, .claude, .cursor, AGENTS.md and their like
  kCi,                  // .github/workflows, .gitlab-ci.yml and their like
  kPackageScript,       // package.json with other scripts, setup.py, build.rs, .npmrc and their like
  kSetIdDropped,        // the host's file has set-id bits, which its replacement will not have
  kHardLinkSplit,       // the host's file has other names, which will keep the old bytes
};
inline constexpr std::array<const char*, 12> kChangeFlagNames = {"executable_gained",
                                                                 "link_leaves_tree",
                                                                 "git",
                                                                 "bare_repository",
                                                                 "hook",
                                                                 "environment_file",
                                                                 "editor",
                                                                 "agent_configuration",
                                                                 "ci",
                                                                 "package_script",
                                                                 "set_id_dropped",
                                                                 "hard_link_split"};

// Why a change is never applied. kNone: it can be.
enum class Refusal : uint8_t {
  kNone,
  kGit,     // .git and everything below it; commits travel as a bundle
  kDevice,  // also a device 0:0 where it is no whiteout
  kFifo,
  kSocket,
  kSetId,          // the session's file has set-user-ID or set-group-ID
  kXattr,          // the session's entry has extended attributes (also ACLs, capabilities) that the host's has not
  kTooLarge,       // larger than DiffLimits::file_bytes, so its bytes were not read
  kUnreadable,     // the session removed its own permission to read it, so it was not read
  kMountPoint,     // something else is mounted on the project there
  kInsideRefused,  // below a directory whose own change is refused
  // Only in the report of Apply:
  kLinkLeavesTree,  // ApplyOptions::allow_leaving_links is off
};
inline constexpr std::array<const char*, 12> kRefusalNames = {
    "",      "git",       "device",     "fifo",        "socket",         "set_id",
    "xattr", "too_large", "unreadable", "mount_point", "inside_refused", "link_leaves_tree"};

struct EntryFacts {
  EntryType type = EntryType::kAbsent;
  mode_t mode = 0;          // permission bits, 07777. Of a directory without the set-id bits, which it inherits
  int64_t size = 0;         // of a file; of a link, the length of its target
  std::string link_target;  // of a link
  std::string sha256;       // of a file's bytes, hex; empty where they were not read (deleted, refused)
};

struct Change {
  std::string path;  // relative to the project, without "." and "..", not empty
  ChangeKind kind = ChangeKind::kAdded;
  EntryFacts before;              // the host's entry when the diff was made
  EntryFacts after;               // the session's entry
  std::vector<ChangeFlag> flags;  // ascending
  Refusal refused = Refusal::kNone;
  // The session changed an entry of the host that the host has removed since. `before` is absent; Apply takes it as a
  // conflict.
  bool host_removed = false;
};

struct DiffSummary {
  int64_t added = 0, modified = 0, deleted = 0, mode = 0, type = 0;  // among them the refused ones
  int64_t flagged = 0, refused = 0;
  int64_t bytes_after = 0;  // of all added and modified files
};

// Sorted: a directory before what is below it, the names of one directory by their bytes.
struct Diff {
  std::vector<Change> changes;

  DiffSummary Summary() const;
  // SHA-256, hex, over a canonical form of every member of every change, the digests of new bytes among them: an
  // approval of this digest is an approval of exactly these changes. docs/design/session-diff.md describes the form.
  std::string Digest() const;
};

// The names of the flags, comma-separated; for messages.
std::string FlagNames(const std::vector<ChangeFlag>& flags);

// As C and git write a name: bare when every byte is printable ASCII other than a quote or a backslash and there is no
// blank at either end; otherwise in double quotes with \n, \t, \", \\ and octal escapes. Safe for a terminal; exact.
std::string QuotedPath(std::string_view path);

// The document of schemas/session_diff.schema.json, one line, without a newline. A path or link target that is not
// UTF-8 is given with U+FFFD for the bad bytes, and exactly in `path_base64` or `link_target_base64`.
std::string DiffToJson(const Diff& diff);

// For people: one line per change ("M  src/main.c", "A! .envrc  [environment_file]"), then the totals.
std::string DiffToText(const Diff& diff);

}  // namespace caisson::session
