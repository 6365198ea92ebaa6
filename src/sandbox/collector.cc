#include "sandbox/collector.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"
#include "linux/syscalls.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

// SECURITY: a path never leads out of the tree, through a link or onto another file system, and a FIFO never blocks us.
constexpr uint64_t kResolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;

UniqueFd OpenEntry(int directory, const char* name, uint64_t flags) {
  if (CAISSON_LEFT_OUT("collector_links"))
    return UniqueFd(::openat(directory, name, static_cast<int>(flags) | O_CLOEXEC | O_NONBLOCK));
  struct open_how how {};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  how.resolve = kResolve;
  UniqueFd opened(linux_sys::OpenAt2(directory, name, how));
  // A kernel that is not Linux (gVisor's) may lack the call. Every name here is one component, for which O_NOFOLLOW
  // says the same but for other file systems; inside foreign walls those are shown on purpose.
  if (!opened && errno == ENOSYS) opened = UniqueFd(::openat(directory, name, static_cast<int>(how.flags)));
  return opened;
}

class Walk {
 public:
  Walk(const std::function<bool(const std::string&)>& wanted, const CollectorLimits& limits, Collected& collected)
      : wanted_(wanted), limits_(limits), collected_(collected) {}

  void Directory(int directory, const std::string& prefix, size_t depth) {
    if (depth > limits_.depth) return Skip(prefix, "nested too deeply");
    std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(OpenEntry(directory, ".", O_RDONLY | O_DIRECTORY).Release()),
                                               ::closedir);
    if (!stream) return Skip(prefix, std::strerror(errno));
    while (const struct dirent* entry = ::readdir(stream.get())) {
      const std::string_view name(entry->d_name);
      if (name == "." || name == "..") continue;
      if (++entries_ > limits_.entries) return;
      Entry(directory, entry->d_name, prefix + "/" + std::string(name), depth);
    }
  }

 private:
  void Entry(int directory, const char* name, const std::string& path, size_t depth) {
    struct stat info {};
    if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (S_ISDIR(info.st_mode)) {
      UniqueFd below = OpenEntry(directory, name, O_RDONLY | O_DIRECTORY);
      if (below) Directory(below.get(), path, depth + 1);
      return;
    }
    if (!wanted_(path)) return;
    if (!S_ISREG(info.st_mode) && !CAISSON_LEFT_OUT("collector_links"))
      return Skip(path, S_ISLNK(info.st_mode) ? "a symbolic link" : "not a regular file");
    if (info.st_nlink > 1) return Skip(path, "has more than one name");
    if (collected_.files.size() >= limits_.files) return Skip(path, "too many artifacts");
    UniqueFd file = OpenEntry(directory, name, O_RDONLY);
    struct stat opened {};
    if (!file || ::fstat(file.get(), &opened) != 0 || !S_ISREG(opened.st_mode)) return Skip(path, "cannot be opened");
    Contents(file.get(), path);
  }

  void Contents(int file, const std::string& path) {
    std::string bytes;
    char chunk[65536];
    // Counts the bytes as it reads them: the size that stat reports proves nothing.
    for (;;) {
      const ssize_t size = ::read(file, chunk, sizeof(chunk));
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return Skip(path, std::strerror(errno));
      if (size == 0) break;
      bytes.append(chunk, static_cast<size_t>(size));
      if (bytes_ + bytes.size() > limits_.bytes) return Skip(path, "artifacts are larger than allowed");
    }
    bytes_ += bytes.size();
    collected_.files.push_back({path, std::move(bytes)});
  }

  void Skip(const std::string& path, const char* reason) {
    if (collected_.skipped.size() < limits_.files) collected_.skipped.push_back(path + ": " + reason);
  }

  const std::function<bool(const std::string&)>& wanted_;
  const CollectorLimits& limits_;
  Collected& collected_;
  size_t entries_ = 0;
  uint64_t bytes_ = 0;
};

bool Matches(std::string_view path, std::string_view glob) {
  // Backtracks only to the last star of each kind: linear in practice and quadratic at worst.
  size_t p = 0, g = 0, star_p = 0, star_g = std::string_view::npos, deep_p = 0, deep_g = std::string_view::npos;
  while (p < path.size()) {
    if (glob.substr(g, 2) == "**") {
      g += 2;
      deep_g = g;
      deep_p = p;
      star_g = std::string_view::npos;
    } else if (g < glob.size() && glob[g] == '*') {
      star_g = ++g;
      star_p = p;
    } else if (g < glob.size() && ((glob[g] == '?' && path[p] != '/') || glob[g] == path[p])) {
      ++g;
      ++p;
    } else if (star_g != std::string_view::npos && path[star_p] != '/') {
      p = ++star_p;
      g = star_g;
    } else if (deep_g != std::string_view::npos) {
      p = ++deep_p;
      g = deep_g;
      star_g = std::string_view::npos;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace

void CollectFiles(int directory, const std::string& prefix, const std::function<bool(const std::string&)>& wanted,
                  const CollectorLimits& limits, Collected& collected) {
  Walk(wanted, limits, collected).Directory(directory, prefix, 0);
}

bool MatchesGlob(const std::string& path, const std::string& glob) { return Matches(path, glob); }

}  // namespace caisson::sandbox
