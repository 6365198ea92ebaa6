// The image store: root file systems by digest, and names for them.
//
//   DIR/names/NAME              a small file with the digest
//   DIR/trees/sha256-HEX/root   the tree, read-only by its permissions
//   DIR/trees/sha256-HEX/image.json    what is known of it (Record)
//   DIR/trees/sha256-HEX/listing       the text whose SHA-256 is the digest: configuration, then one line per entry
//   DIR/tmp/…                   imports in progress
//   DIR/lock                    held while names or trees change
//
// A tree is complete before it gets its name: it is built below tmp, synced and renamed. It never changes afterwards;
// every run that uses an image holds a shared lock on its `root`, and no tree is removed that is locked.
//
// Any thread may call these; nothing is shared but the directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "image/manifest.h"
#include "image/tree.h"
#include "policy/plan.h"

namespace caisson::image {

struct Record {
  std::string digest;  // "sha256:…"
  Config config;
  std::vector<policy::RootEntry> entries;
  uint64_t files = 0, bytes = 0;
  uint64_t left_out_count = 0;
  std::vector<std::string> left_out;
  std::string source;    // what it was imported from
  std::string imported;  // when
};

struct NamedImage {
  std::string name;  // empty: no name refers to it
  Record record;
};

// "caisson-image 1", the canonical configuration and the listing, each ended by a NUL: what the digest covers.
std::string DigestText(const Config& config, const std::string& listing);

class Store {
 public:
  // $CAISSON_IMAGES; else /var/lib/caisson/images for root, and caisson/images below $XDG_DATA_HOME or ~/.local/share.
  static Result<std::string> DefaultDirectory();
  static constexpr char kSystemDirectory[] = "/var/lib/caisson/images";

  explicit Store(std::string directory) : directory_(std::move(directory)) {}
  const std::string& directory() const { return directory_; }

  // `reference` is a name or "sha256:…". kNotFound when there is none.
  Result<Record> Find(const std::string& reference) const;
  // Opens an image for a run. The lock on the tree is released when the descriptor, and every copy of it, is closed.
  Result<policy::PlannedImage> Open(const std::string& reference) const;
  // The tree and its record, for an export.
  Result<UniqueFd> OpenTree(const Record& record) const;

  // By name; trees without a name last.
  Result<std::vector<NamedImage>> List() const;

  // A place below tmp for an import, removed by the destructor unless its tree was added.
  class Draft {
   public:
    Draft(Draft&& other) noexcept = default;
    Draft& operator=(Draft&&) = delete;
    ~Draft();
    // A new empty directory.
    Result<UniqueFd> MakeDirectory(const std::string& name);
    std::string path() const { return store_ + "/tmp/" + name_; }

   private:
    friend class Store;
    Draft(std::string store, std::string name, UniqueFd parent, UniqueFd directory)
        : store_(std::move(store)),
          name_(std::move(name)),
          parent_(std::move(parent)),
          directory_(std::move(directory)) {}
    std::string store_, name_;
    UniqueFd parent_, directory_;  // tmp, and the draft in it, locked
  };
  Result<Draft> Begin() const;
  // Makes the directory `root` of the draft an image and gives it the name. Returns its record; the tree that is there
  // already when it has the same digest.
  Result<Record> Add(Draft draft, const std::string& name, const Config& config, const Contents& contents,
                     const std::string& source) const;

  // Removes the name. kNotFound when there is none.
  Status Remove(const std::string& name) const;
  struct Collected {
    uint64_t trees = 0, bytes = 0;
    uint64_t in_use = 0;  // without a name, but used by a run
  };
  // Removes trees that no name refers to and no run uses, and imports that were broken off.
  Result<Collected> CollectGarbage() const;

 private:
  Result<UniqueFd> OpenBelow(const std::string& path) const;
  Result<std::string> Resolve(const std::string& reference) const;  // hex
  Result<Record> ReadRecord(const std::string& hex) const;
  Result<UniqueFd> Lock() const;
  Result<std::vector<std::pair<std::string, std::string>>> ReadNames() const;  // name and hex

  std::string directory_;
};

}  // namespace caisson::image
