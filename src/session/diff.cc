#include "session/diff.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutation.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "session/flags.h"
#include "session/tree.h"

namespace caisson::session {

namespace {

constexpr int64_t kMaxPackageBytes = 1 << 20;  // a larger package.json is flagged unread

using OptionalStat = std::optional<EntryStat>;

// A directory of both trees at once.
struct Place {
  std::string path;
  int host_fd = -1;  // -1: the host has no such directory
  int session_fd = -1;
  bool hides_host = false;             // an opaque directory: what the session's side lacks is deleted
  bool marked_whiteouts = false;       // opaque=x: whiteouts may be empty files with an attribute
  Refusal inherited = Refusal::kNone;  // everything below is refused for this reason
  int depth = 0;
};

mode_t ComparedMode(const EntryStat& stat) {
  return stat.type == EntryType::kDirectory ? stat.mode & 01777 : stat.mode;
}

EntryFacts FactsOf(const EntryStat& stat) {
  EntryFacts facts;
  facts.type = stat.type;
  facts.mode = ComparedMode(stat);
  facts.size = stat.type == EntryType::kFile || stat.type == EntryType::kLink ? stat.size : 0;
  return facts;
}

Refusal RefusalOfType(EntryType type) {
  if (type == EntryType::kFifo) return Refusal::kFifo;
  if (type == EntryType::kSocket) return Refusal::kSocket;
  if (type == EntryType::kDevice) return Refusal::kDevice;
  return Refusal::kNone;
}

void AddFlag(Change& change, ChangeFlag flag) {
  const auto at = std::lower_bound(change.flags.begin(), change.flags.end(), flag);
  if (at == change.flags.end() || *at != flag) change.flags.insert(at, flag);
}

class Walker {
 public:
  Walker(int project_fd, const SessionTree& tree, const DiffLimits& limits)
      : project_fd_(project_fd), tree_(tree), budget_(limits) {
    if (tree.manifest == nullptr) return;
    for (const auto& [path, entry] : tree.manifest->entries) {
      recorded_names_[std::string(ParentOf(path))].emplace_back(NameOf(path));
    }
  }

  Result<Diff> Run() {
    CAISSON_TRY(const UniqueFd host, OpenBelow(project_fd_, "", O_RDONLY | O_DIRECTORY));
    CAISSON_TRY(const UniqueFd session, OpenBelow(tree_.fd, "", O_RDONLY | O_DIRECTORY));
    Place root;
    root.host_fd = host.get();
    root.session_fd = session.get();
    CAISSON_TRY_VOID(ReadMarks(root));
    root.hides_host = false;  // the root of an upper directory is never opaque by the workload's doing
    CAISSON_TRY_VOID(WalkDirectory(root));
    FlagBareRepositories();
    return std::move(diff_);
  }

 private:
  const ManifestEntry* Recorded(const std::string& path) const {
    if (tree_.manifest == nullptr) return nullptr;
    const auto found = tree_.manifest->entries.find(path);
    return found == tree_.manifest->entries.end() ? nullptr : &found->second;
  }

  Status ReadMarks(Place& place) {
    if (tree_.manifest != nullptr) return {};
    CAISSON_TRY(const std::optional<std::string> opaque, OverlayAttribute(place.session_fd, "opaque"));
    place.hides_host = opaque == "y";
    place.marked_whiteouts = opaque == "x";
    CAISSON_TRY(const std::optional<std::string> redirect, OverlayAttribute(place.session_fd, "redirect"));
    if (redirect) return Error::Unsupported("the overlay has a redirected directory: " + QuotedPath(place.path));
    return {};
  }

  // The names to look at: the session's, and those it may have deleted.
  Result<std::set<std::string>> NamesOfPlace(const Place& place) {
    CAISSON_TRY(const std::vector<std::string> names, ReadNames(place.session_fd, place.path, budget_));
    std::set<std::string> all(names.begin(), names.end());
    if (place.hides_host && place.host_fd >= 0) {
      CAISSON_TRY(const std::vector<std::string> hidden, ReadNames(place.host_fd, place.path, budget_));
      all.insert(hidden.begin(), hidden.end());
    }
    if (const auto recorded = recorded_names_.find(place.path); recorded != recorded_names_.end()) {
      all.insert(recorded->second.begin(), recorded->second.end());
    }
    return all;
  }

  Status WalkDirectory(const Place& place) {
    CAISSON_TRY_VOID(budget_.Depth(place.depth, place.path));
    CAISSON_TRY(const std::set<std::string> names, NamesOfPlace(place));
    for (const std::string& name : names) {
      CAISSON_TRY(OptionalStat session, StatAt(place.session_fd, name));
      OptionalStat host;
      if (place.host_fd >= 0) {
        CAISSON_TRY(host, StatAt(place.host_fd, name));
      }
      CAISSON_TRY(const bool whiteout, IsWhiteout(place, name, session));
      if (whiteout) session.reset();
      CAISSON_TRY_VOID(session ? JudgeEntry(place, name, host, *session) : JudgeMissing(place, name, host));
    }
    return {};
  }

  Result<bool> IsWhiteout(const Place& place, const std::string& name, const OptionalStat& session) {
    if (tree_.manifest != nullptr || !session) return false;
    if (session->whiteout_device) return true;
    if (!place.marked_whiteouts || session->type != EntryType::kFile || session->size != 0) return false;
    Result<UniqueFd> file = OpenBelow(place.session_fd, name, O_RDONLY);
    if (!file) return file.error().errno_value == EACCES ? Result<bool>(false) : std::move(file).error();
    CAISSON_TRY(const std::optional<std::string> mark, OverlayAttribute(file->get(), "whiteout"));
    return mark.has_value();
  }

  Status JudgeMissing(const Place& place, const std::string& name, const OptionalStat& host) {
    const std::string path = Joined(place.path, name);
    if (host) return EmitDeleted(place.host_fd, path, name, *host, place.inherited, place.depth);
    const ManifestEntry* recorded = Recorded(path);
    if (place.inherited == Refusal::kMountPoint && recorded != nullptr) {
      Change change = NewChange(path, ChangeKind::kDeleted, place.inherited);
      change.before.type = recorded->type;
      diff_.changes.push_back(std::move(change));
    }
    return {};  // the host has removed it too
  }

  Change NewChange(const std::string& path, ChangeKind kind, Refusal inherited) {
    Change change;
    change.path = path;
    change.kind = kind;
    change.flags = FlagsOfPath(path);
    change.refused = IsBelowGit(path) ? Refusal::kGit : inherited;
    return change;
  }

  Status EmitDeleted(int host_dir, const std::string& path, const std::string& name, const EntryStat& host,
                     Refusal inherited, int depth) {
    CAISSON_TRY_VOID(budget_.Depth(depth, path));
    Change change = NewChange(path, ChangeKind::kDeleted, inherited);
    change.before = FactsOf(host);
    if (host.type == EntryType::kLink) {
      CAISSON_TRY(change.before.link_target, ReadLink(host_dir, name));
    }
    if (host.mount_root) change.refused = Refusal::kMountPoint;
    const Refusal below = change.refused;
    diff_.changes.push_back(std::move(change));
    if (host.type != EntryType::kDirectory || host.mount_root) return {};
    return EmitDeletedBelow(host_dir, path, name, below, depth);
  }

  Status EmitDeletedBelow(int host_dir, const std::string& path, const std::string& name, Refusal inherited,
                          int depth) {
    Result<UniqueFd> directory = OpenBelow(host_dir, name, O_RDONLY | O_DIRECTORY);
    if (!directory) return std::move(directory).error().In("the host's directory, which the session deleted");
    CAISSON_TRY(const std::vector<std::string> names, ReadNames(directory->get(), path, budget_));
    for (const std::string& below : names) {
      CAISSON_TRY(const OptionalStat stat, StatAt(directory->get(), below));
      if (!stat) continue;
      CAISSON_TRY_VOID(EmitDeleted(directory->get(), Joined(path, below), below, *stat, inherited, depth + 1));
    }
    return {};
  }

  // Fills `change`; its caller drops it when nothing differs.
  Status JudgeEntry(const Place& place, const std::string& name, const OptionalStat& host, const EntryStat& session) {
    const std::string path = Joined(place.path, name);
    const ManifestEntry* recorded = Recorded(path);
    const bool untouched = recorded != nullptr && recorded->type == session.type && recorded->inode == session.inode &&
                           recorded->ctime_ns == session.ctime_ns;
    if (untouched && session.type != EntryType::kDirectory) return {};

    Change change = NewChange(path, ChangeKind::kAdded, place.inherited);
    change.after = FactsOf(session);
    bool differs = !host;
    if (host) {
      change.before = FactsOf(*host);
      if (host->type == EntryType::kLink) {
        CAISSON_TRY(change.before.link_target, ReadLink(place.host_fd, name));
      }
      change.kind = host->type != session.type ? ChangeKind::kType : ChangeKind::kMode;
      // A copy's mode may differ from the host's from the beginning; only what the session changed counts.
      if (recorded != nullptr && recorded->type == session.type && recorded->mode == session.mode) {
        change.after.mode = change.before.mode;
      }
      differs = change.kind == ChangeKind::kType || change.before.mode != change.after.mode;
    } else {
      change.host_removed = recorded != nullptr && place.inherited != Refusal::kMountPoint;
    }
    if (change.refused == Refusal::kNone) change.refused = RefusalOfType(session.type);
    if (host && host->mount_root && session.type != EntryType::kDirectory) change.refused = Refusal::kMountPoint;

    if (session.type == EntryType::kDirectory)
      return JudgeDirectory(place, name, host, std::move(change), differs, untouched);
    if (session.type == EntryType::kLink) {
      CAISSON_TRY_VOID(JudgeLink(place, name, host, change, differs));
    } else if (session.type == EntryType::kFile) {
      CAISSON_TRY_VOID(JudgeFile(place, name, host, session, change, differs));
    }
    if (!differs) return {};
    const bool replaces_directory = host && host->type == EntryType::kDirectory;
    const Refusal below =
        change.refused == Refusal::kNone || change.refused == Refusal::kGit ? change.refused : Refusal::kInsideRefused;
    diff_.changes.push_back(std::move(change));
    if (!replaces_directory || host->mount_root) return {};
    return EmitDeletedBelow(place.host_fd, path, name, below, place.depth + 1);
  }

  Status JudgeLink(const Place& place, const std::string& name, const OptionalStat& host, Change& change,
                   bool& differs) {
    CAISSON_TRY(change.after.link_target, ReadLink(place.session_fd, name));
    change.after.mode = 0777;
    if (host && host->type == EntryType::kLink) {
      change.before.mode = 0777;
      differs = change.before.link_target != change.after.link_target;
      change.kind = ChangeKind::kModified;
    }
    if (LinkMayLeave(change.path, change.after.link_target) || LeavesThroughHost(change)) {
      AddFlag(change, ChangeFlag::kLinkLeavesTree);
    }
    return {};
  }

  // A target that passes through a link of the host's own may leave the project although its spelling does not.
  bool LeavesThroughHost(const Change& change) const {
    struct open_how how {};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    const std::string path = Joined(ParentOf(change.path), change.after.link_target);
    const UniqueFd fd(linux_sys::OpenAt2(project_fd_, path.c_str(), how));
    return !fd && errno != ENOENT && errno != ENOTDIR && errno != EACCES;
  }

  Status JudgeFile(const Place& place, const std::string& name, const OptionalStat& host, const EntryStat& session,
                   Change& change, bool& differs) {
    const bool was_file = host && host->type == EntryType::kFile;
    if ((session.mode & 06000) != 0 && change.refused == Refusal::kNone) change.refused = Refusal::kSetId;
    if ((session.mode & 0111) != 0 && (!was_file || (host->mode & 0111) == 0)) {
      AddFlag(change, ChangeFlag::kExecutableGained);
    }
    if (was_file && (host->mode & 06000) != 0) AddFlag(change, ChangeFlag::kSetIdDropped);
    if (was_file && host->links > 1) AddFlag(change, ChangeFlag::kHardLinkSplit);
    const auto refuse = [&](Refusal reason) {
      differs = true;
      if (was_file) change.kind = ChangeKind::kModified;
      if (change.refused == Refusal::kNone) change.refused = reason;
      return Status();
    };
    if (session.size > budget_.limits().file_bytes) return refuse(Refusal::kTooLarge);
    Result<UniqueFd> ours = OpenBelow(place.session_fd, name, O_RDONLY);
    if (!ours && ours.error().errno_value == EACCES) return refuse(Refusal::kUnreadable);
    if (!ours) return std::move(ours).error().In("the session's tree");
    CAISSON_TRY(const std::optional<std::string> partial,
                tree_.manifest == nullptr ? OverlayAttribute(ours->get(), "metacopy") : std::optional<std::string>());
    if (partial) return Error::Unsupported("the overlay has a file without its bytes: " + QuotedPath(change.path));
    CAISSON_TRY(const std::optional<FileDigest> after, HashFile(ours->get(), budget_));
    if (!after || after->bytes != session.size) {
      return Error::Conflict(QuotedPath(change.path) + " changed while it was read: something runs in the session");
    }
    change.after.sha256 = after->sha256;
    Attributes host_attributes;
    UniqueFd theirs;
    if (was_file) {
      if (Result<UniqueFd> opened = OpenBelow(place.host_fd, name, O_RDONLY)) {
        theirs = *std::move(opened);
        CAISSON_TRY(const std::optional<FileDigest> before, HashFile(theirs.get(), budget_));
        if (before) {
          change.before.sha256 = before->sha256;
          change.before.size = before->bytes;
        }
        CAISSON_TRY(host_attributes, ReadAttributes(theirs.get()));
      }
      if (change.before.sha256 != change.after.sha256) {
        differs = true;
        change.kind = ChangeKind::kModified;
      }
    }
    CAISSON_TRY(const Attributes attributes, ReadAttributes(ours->get()));
    for (const auto& attribute : attributes) {
      if (std::find(host_attributes.begin(), host_attributes.end(), attribute) == host_attributes.end()) {
        return refuse(Refusal::kXattr);
      }
    }
    if (differs) return FlagPackage(change, ours->get(), theirs.get());
    return {};
  }

  static Status FlagPackage(Change& change, int after_fd, int before_fd) {
    if (NameOf(change.path) != "package.json") return {};
    std::string before, after;
    if (change.after.size <= kMaxPackageBytes && change.before.size <= kMaxPackageBytes) {
      CAISSON_TRY(after, linux_sys::ReadAt(after_fd, 0, change.after.size));
      if (before_fd >= 0) {
        CAISSON_TRY(before, linux_sys::ReadAt(before_fd, 0, change.before.size));
      }
      if (!PackageScriptsDiffer(before, after)) return {};
    }
    AddFlag(change, ChangeFlag::kPackageScript);
    return {};
  }

  Status JudgeDirectory(const Place& place, const std::string& name, const OptionalStat& host, Change change,
                        bool differs, bool untouched) {
    Place below;
    below.path = change.path;
    below.depth = place.depth + 1;
    below.inherited = change.refused;
    if (host && host->mount_root) below.inherited = change.refused = Refusal::kMountPoint;
    Result<UniqueFd> session_dir = OpenBelow(place.session_fd, name, O_RDONLY | O_DIRECTORY);
    if (!session_dir) {
      if (session_dir.error().errno_value != EACCES) return std::move(session_dir).error().In("the session's tree");
      if (untouched) return {};
      if (change.refused == Refusal::kNone) change.refused = Refusal::kUnreadable;
      diff_.changes.push_back(std::move(change));  // also where nothing else differs: what it holds is not known
      return {};
    }
    UniqueFd host_dir;
    if (host && host->type == EntryType::kDirectory && !host->mount_root) {
      CAISSON_TRY(host_dir, OpenBelow(place.host_fd, name, O_RDONLY | O_DIRECTORY));
    }
    below.session_fd = session_dir->get();
    below.host_fd = host_dir.get();
    CAISSON_TRY_VOID(ReadMarks(below));
    CAISSON_TRY(const bool refused, HasNewAttributes(session_dir->get(), host_dir.get(), untouched));
    if (refused) {
      differs = true;
      if (change.refused == Refusal::kNone) change.refused = Refusal::kXattr;
      // A directory that exists can still take the changes below it.
      if (!host_dir) below.inherited = Refusal::kInsideRefused;
    }
    if (!host && tree_.manifest == nullptr) {
      // overlayfs marks what it copied from the host. A directory of the host's cannot have been renamed (EXDEV), so
      // the host has removed it; a file may have been, and is simply new.
      CAISSON_TRY(const std::optional<std::string> origin, OverlayAttribute(session_dir->get(), "origin"));
      change.host_removed = origin.has_value();
    }
    if (differs) diff_.changes.push_back(std::move(change));
    return WalkDirectory(below);
  }

  Result<bool> HasNewAttributes(int session_fd, int host_fd, bool untouched) {
    if (untouched) return false;
    CAISSON_TRY(const Attributes attributes, ReadAttributes(session_fd));
    if (attributes.empty()) return false;
    Attributes known;
    if (host_fd >= 0) {
      CAISSON_TRY(known, ReadAttributes(host_fd));
    }
    return !std::includes(known.begin(), known.end(), attributes.begin(), attributes.end());
  }

  // git takes a directory with HEAD, objects and refs for a repository and obeys its config, whatever it is called.
  void FlagBareRepositories() {
    std::unordered_set<std::string> present;
    for (const Change& change : diff_.changes) {
      if (change.after.type != EntryType::kAbsent) present.insert(change.path);
    }
    const auto exists = [&](const std::string& path) {
      return present.count(path) != 0 || OpenBelow(project_fd_, path, O_PATH).has_value();
    };
    for (Change& change : diff_.changes) {
      const std::string_view name = NameOf(change.path), directory = ParentOf(change.path);
      if (change.after.type == EntryType::kAbsent || change.refused == Refusal::kGit) continue;
      if (name != "HEAD" && name != "config" && name != "objects" && name != "refs" && name != "hooks") continue;
      if (exists(Joined(directory, "HEAD")) && exists(Joined(directory, "objects")) &&
          exists(Joined(directory, "refs"))) {
        AddFlag(change, ChangeFlag::kBareRepository);
      }
    }
  }

  int project_fd_;
  SessionTree tree_;
  Budget budget_;
  Diff diff_;
  std::unordered_map<std::string, std::vector<std::string>> recorded_names_;
};

}  // namespace

Result<Diff> ComputeDiff(int project_fd, const SessionTree& tree, const DiffLimits& limits) {
  if (CAISSON_LEFT_OUT("no_host_git")) {
    const std::string directory = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(tree.fd);
    if (std::system(("git -C " + directory + " status >/dev/null 2>&1").c_str()) != 0) return Error::Invalid("git");
  }
  return Walker(project_fd, tree, limits).Run();
}

}  // namespace caisson::session
