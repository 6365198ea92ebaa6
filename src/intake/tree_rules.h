// Rules for an untrusted tree: names, kinds, links and size.
//
// The same rules are applied twice: by the helper while it unpacks, so that an archive bomb ends at the first byte too
// many, and by the receiver of the tree, because the helper has read hostile bytes and may have been taken over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"

namespace caisson::intake {

struct Limits {
  uint64_t entries = 4096;                   // directories that are only implied count too
  uint64_t bytes = uint64_t{32} << 20;       // of all files and link targets together
  uint64_t file_bytes = uint64_t{32} << 20;  // of one of them
  uint64_t path_bytes = 1024;
  uint64_t depth = 64;
  uint64_t ratio = 100;                     // bytes unpacked for one byte of archive …
  uint64_t ratio_free = uint64_t{1} << 20;  // … beyond this size: a page of blanks is not a bomb
};

// As one word, to be handed to the helper.
std::string Format(const Limits& limits);
std::optional<Limits> ParseLimits(std::string_view text);

// Errors are ErrorKind::kInvalid and begin with the entry's name in quotes.
class TreeRules {
 public:
  TreeRules(const Limits& limits, uint64_t archive_bytes) : limits_(limits), archive_bytes_(archive_bytes) {}

  // An entry begins. `link_target` is looked at for links only. Refuses names that could mean a place outside or two
  // places, duplicate names, and paths below an entry that is not a directory, in either order.
  //
  // SECURITY: a link must stay in the tree as far as spelling goes: not absolute, not above the root. Through a second
  // link it could still lead outside, but Caisson never follows links in a workspace; only the workload does, in a
  // sandbox where nothing is outside.
  Status Enter(const std::string& path, policy::FileKind kind, std::string_view link_target = {});

  // `count` more bytes belong to the entry `path`.
  Status Grow(const std::string& path, uint64_t count);

  // The directories that entries lie in without having been entries themselves.
  std::vector<std::string> ImpliedDirectories() const;

 private:
  struct Node {
    policy::FileKind kind = policy::FileKind::kDirectory;
    bool implied = false;
    uint64_t bytes = 0;
  };

  Status EnterParents(const std::string& path);
  Status Insert(const std::string& path, Node node);

  Limits limits_;
  uint64_t archive_bytes_;
  uint64_t bytes_ = 0;
  std::map<std::string, Node, std::less<>> nodes_;
};

}  // namespace caisson::intake
