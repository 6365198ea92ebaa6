// RenderPatch: the changes as git writes them.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>

#include "linux/files.h"
#include "session/diff.h"
#include "session/line_diff.h"
#include "session/tree.h"

namespace caisson::session {

namespace {

bool IsBinary(std::string_view bytes) { return bytes.substr(0, 8000).find('\0') != std::string_view::npos; }

bool Expressible(const EntryFacts& facts) { return facts.type == EntryType::kFile || facts.type == EntryType::kLink; }

const char* GitMode(const EntryFacts& facts) {
  if (facts.type == EntryType::kLink) return "120000";
  return (facts.mode & 0100) != 0 ? "100755" : "100644";
}

// git quotes the prefix together with the name.
std::string Prefixed(const char* prefix, const std::string& path) {
  const std::string quoted = QuotedPath(prefix + path);
  return quoted;
}

struct Side {
  bool readable = true;  // false: too large to show
  std::string bytes;
};

class PatchWriter {
 public:
  PatchWriter(int project_fd, int session_fd, const PatchLimits& limits)
      : project_fd_(project_fd), session_fd_(session_fd), limits_(limits) {}

  Status Add(const Change& change) {
    if (change.refused != Refusal::kNone) {
      Note("refused (" + std::string(kRefusalNames[static_cast<size_t>(change.refused)]) + ")", change);
      return {};
    }
    const bool old_side = Expressible(change.before), new_side = Expressible(change.after);
    if (!old_side && !new_side) {
      Note("directory " + std::string(kChangeKindNames[static_cast<size_t>(change.kind)]), change);
      return {};
    }
    if (change.kind == ChangeKind::kType && old_side && new_side) {  // git removes and creates
      CAISSON_TRY_VOID(AddSides(change, change.before, EntryFacts()));
      return AddSides(change, EntryFacts(), change.after);
    }
    return AddSides(change, change.before, change.after);
  }

  Result<std::string> Finish() && { return std::move(text_); }

 private:
  void Note(const std::string& what, const Change& change) {
    text_ += "caisson: " + what + ": " + QuotedPath(change.path) + "\n";
  }

  Result<Side> Read(int root_fd, const Change& change, const EntryFacts& facts) {
    if (facts.type == EntryType::kLink) return Side{true, facts.link_target};
    if (facts.type != EntryType::kFile) return Side{};
    if (facts.size > limits_.file_bytes) return Side{false, {}};
    CAISSON_TRY(const UniqueFd file, OpenBelow(root_fd, change.path, O_RDONLY));
    struct stat info {};
    if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != facts.size) {
      return Error::Conflict(QuotedPath(change.path) + " changed after the diff was made; make a new one");
    }
    CAISSON_TRY(std::string bytes, linux_sys::ReadAt(file.get(), 0, info.st_size));
    return Side{true, std::move(bytes)};
  }

  Status AddSides(const Change& change, const EntryFacts& before, const EntryFacts& after) {
    const bool had = Expressible(before), has = Expressible(after);
    CAISSON_TRY(const Side old_side, Read(project_fd_, change, before));
    CAISSON_TRY(const Side new_side, Read(session_fd_, change, after));
    const bool mode_differs = had && has && std::string_view(GitMode(before)) != GitMode(after);
    if (had && has && before.mode != after.mode && !mode_differs)
      Note("mode " + Octal(before) + " -> " + Octal(after), change);
    const bool same_bytes = had && has && old_side.readable && new_side.readable && old_side.bytes == new_side.bytes;
    if (same_bytes && !mode_differs) return Bounded();
    const std::string old_name = Prefixed("a/", change.path), new_name = Prefixed("b/", change.path);
    text_ += "diff --git " + old_name + " " + new_name + "\n";
    if (!had) text_ += std::string("new file mode ") + GitMode(after) + "\n";
    if (!has) text_ += std::string("deleted file mode ") + GitMode(before) + "\n";
    if (mode_differs) text_ += std::string("old mode ") + GitMode(before) + "\nnew mode " + GitMode(after) + "\n";
    if (same_bytes) return Bounded();
    const std::string from = had ? old_name : "/dev/null", to = has ? new_name : "/dev/null";
    if (!old_side.readable || !new_side.readable) {
      Note("too large to show", change);
    } else if (IsBinary(old_side.bytes) || IsBinary(new_side.bytes)) {
      text_ += "Binary files " + from + " and " + to + " differ\n";
    } else if (!old_side.bytes.empty() || !new_side.bytes.empty()) {
      // git ends a name with a blank in it by a tab.
      const auto ended = [](const std::string& name) {
        return name.find(' ') == std::string::npos ? name : name + "\t";
      };
      text_ += "--- " + ended(from) + "\n+++ " + ended(to) + "\n" + UnifiedHunks(old_side.bytes, new_side.bytes);
    }
    return Bounded();
  }

  static std::string Octal(const EntryFacts& facts) {
    char text[8];
    std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(facts.mode));
    return text;
  }

  Status Bounded() const {
    if (static_cast<int64_t>(text_.size()) <= limits_.patch_bytes) return {};
    return Error::Exhausted("the patch is larger than " + std::to_string(limits_.patch_bytes) + " bytes");
  }

  int project_fd_, session_fd_;
  PatchLimits limits_;
  std::string text_;
};

}  // namespace

Result<std::string> RenderPatch(int project_fd, const SessionTree& tree, const Diff& diff, const PatchLimits& limits) {
  PatchWriter writer(project_fd, tree.fd, limits);
  for (const Change& change : diff.changes) CAISSON_TRY_VOID(writer.Add(change));
  return std::move(writer).Finish();
}

}  // namespace caisson::session
