// RunPlan: a judged request, complete and ready for any runtime. Every path in it is already an open descriptor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/credentials.h"
#include "policy/decision.h"
#include "policy/limits.h"
#include "policy/path_policy.h"
#include "policy/profile.h"

namespace caisson::policy {

struct PlannedMount {
  JudgedPath source;
  std::string target;
  Access access = Access::kReadOnly;
};

// A directory on disk, as the caller opened it, with the subdirectories `upper` and `work`: keeps what is changed in a
// copy-on-write workspace after the run has ended.
struct PlannedLayer {
  UniqueFd fd;
  std::string path;  // canonical
};

// How an entry of an image's top directory is shown; the names of sandbox::RootEntryKind.
enum class RootEntryKind { kTree, kFile, kEmpty, kLink, kMerged };

struct RootEntry {
  std::string name;
  RootEntryKind kind = RootEntryKind::kTree;
  std::string target;  // of a link
};

// The root file system of an image: a directory that every user can read and no run changes.
struct PlannedRoot {
  UniqueFd fd;       // opened by the image store; holds the store's lock on the tree as long as it is open
  std::string path;  // canonical
  std::vector<RootEntry> entries;
};

// What a run shows in place of the host's programs.
struct PlannedImage {
  std::string name;    // as it was asked for
  std::string digest;  // "sha256:…"; empty for a virtual environment, whose files may change
  std::optional<PlannedRoot> root;
  std::vector<std::string> host_paths;  // of a virtual environment: shown read-only at the same place, besides /usr
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;     // empty: none, or one that the image lacks
  std::vector<std::string> command;  // the entry point and its arguments
};

enum class FileKind { kRegular, kSymlink, kDirectory };

// A file of the source, read completely: the bytes that were hashed are the bytes that run.
struct PlannedFile {
  std::string path;  // relative to /workspace
  std::string bytes;
  unsigned mode = 0644;
  FileKind kind = FileKind::kRegular;
};

// A port of the sandbox's loopback that can be reached at a port of the host's.
struct PlannedForward {
  uint16_t port = 0;
  uint16_t inside_port = 0;
  UniqueFd listener;  // outside; opened when the run starts
};

struct PlannedCommand {
  std::string name;
  std::string tier;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;  // on top of the profile's
  std::string cwd = "/workspace";
  std::optional<std::string> stdin_bytes;
  int64_t timeout_ms = 0;
};

struct RunPlan {
  Profile profile;
  Limits limits;                      // the profile's, tightened by the request
  std::optional<PlannedImage> image;  // absent: the host's programs, as the profile shows them
  std::vector<PlannedFile> workspace_files;
  std::optional<PlannedMount> workspace_mount;
  Access workspace_access = Access::kReadOnly;
  std::optional<PlannedLayer> workspace_layer;  // absent: changes go to scratch and end with the run
  std::vector<PlannedMount> mounts;
  std::vector<PlannedForward> forwards;
  bool attended = false;  // a person can be asked while it runs
  std::vector<PlannedCredential> credentials;
  std::vector<PlannedCommand> commands;  // the known commands; the runtime gets each when its turn comes
  Decision decision;

  // Whether the sandbox has anything to do with the network beyond its own loopback.
  bool has_network() const { return profile.network.mode == NetworkMode::kAllowlist || !forwards.empty(); }
};

}  // namespace caisson::policy
