// Builds the tree of an image on disk from the entries of its layers, lowest first, and keeps a list of what is in it.
//
// SECURITY: every entry is hostile, and the tree being built contains the links of earlier entries. The builder looks
// names up in its own list, never on disk: a directory that is reached through a link of the image is resolved within
// the tree, as chroot would, and the resulting path, which has no link in it, is opened with RESOLVE_BENEATH and
// RESOLVE_NO_SYMLINKS. A name with ".." is refused.
//
// Files belong to the caller and are readable for all; directories and files cannot be written once Finish was called.
// Owners, set-id bits and extended attributes are never applied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "intake/layer.h"
#include "policy/plan.h"
#include "verify/digest.h"

namespace caisson::image {

struct Contents {
  // One line per entry, in order of name, each ended by a NUL: kind, SHA-256 of the contents or link target, name. The
  // kinds are f (file), x (executable file), l (link) and d (directory).
  std::string listing;
  std::vector<policy::RootEntry> entries;  // of the top directory, without those that every sandbox has of its own
  uint64_t files = 0;                      // entries of any kind
  uint64_t bytes = 0;                      // of regular files, each name counted
  std::vector<std::string> left_out;       // "name: why", the first ones
  uint64_t left_out_count = 0;
};

class TreeBuilder : public intake::LayerSink {
 public:
  // `directory` is empty and only ours. `limits` hold for all layers together.
  TreeBuilder(UniqueFd directory, const intake::Limits& limits);
  ~TreeBuilder() override = default;

  // The next entries belong to a new layer. With `whiteouts`, names like ".wh.x" remove x of the layers below.
  void BeginLayer(bool whiteouts);

  Status OnDirectory(const std::string& path) override;
  Status OnFile(const std::string& path, bool executable, int64_t time) override;
  Status OnBytes(std::string_view bytes) override;
  Status OnSymlink(const std::string& path, const std::string& target) override;
  Status OnHardLink(const std::string& path, const std::string& other) override;
  Status OnLeftOut(const std::string& path, const std::string& why) override;
  Status OnEnd() override { return EndFile(); }

  // True if the top directory has an entry of that name.
  bool HasTop(const std::string& name) const { return nodes_.count(name) > 0; }
  int directory() const { return root_.get(); }

  // Makes all directories read-only and describes the tree.
  Result<Contents> Finish();

 private:
  enum class Kind : uint8_t { kDirectory, kFile, kExecutable, kLink };
  struct Node {
    Kind kind = Kind::kDirectory;
    uint32_t layer = 0;
    uint64_t bytes = 0;
    std::string content;  // SHA-256 of a file's bytes, in hex; the target of a link
  };
  // Where an entry goes: its directory without links, and its name in it. The root itself has an empty name.
  struct Place {
    std::string directory;
    std::string name;
    std::string path() const { return directory.empty() ? name : directory + "/" + name; }
  };

  Result<Place> Locate(const std::string& path, bool make);
  // The path of an existing or new directory, links resolved.
  Result<std::string> RealDirectory(std::vector<std::string> components, const std::string& shown, bool make);
  Result<int> OpenDirectory(const std::string& path);
  Status MakeDirectory(const std::string& path);
  Status Insert(const Place& place, Node node);
  // Removes the entry and everything below, on disk and in the list.
  Status Remove(const std::string& path);
  Status RemoveOne(const std::string& path, const Node& node);
  // True: the entry was a whiteout, and is done.
  Result<bool> ApplyWhiteout(const std::string& path);
  Status Clear(const Place& place, bool for_directory);
  Status EndFile();

  UniqueFd root_;
  const intake::Limits limits_;
  std::map<std::string, Node> nodes_;
  uint32_t layer_ = 0;
  bool whiteouts_ = false;
  uint64_t bytes_ = 0;
  // The directory that was opened last: most entries share it with the one before.
  std::string opened_path_;
  UniqueFd opened_;
  // The file being written.
  UniqueFd file_;
  Place file_place_;
  Node file_node_;
  int64_t file_time_ = 0;
  verify::Sha256Stream file_hash_;
  std::vector<std::string> left_out_;
  uint64_t left_out_count_ = 0;
};

// Removes the directory `name` and everything in it, also what cannot be written. Nothing happens if it is not there.
Status RemoveTree(int parent, const std::string& name);

}  // namespace caisson::image
