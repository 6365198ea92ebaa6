#include "policy/mount_table.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>

#include "linux/files.h"
#include "policy/syntax.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxMountInfo = size_t{16} << 20;

std::string_view NextWord(std::string_view& line) {
  const size_t space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  return word;
}

// The kernel writes the blanks and backslashes of a path as \ooo.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      unsigned value = 0;
      const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8);
      if (error == std::errc() && end == text.data() + i + 4) {
        plain.push_back(static_cast<char>(value));
        i += 3;
        continue;
      }
    }
    plain.push_back(text[i]);
  }
  return plain;
}

// The part of `path` behind `directory`, at or below which it is: "" or "/…".
std::string Beyond(const std::string& path, const std::string& directory) {
  return directory == "/" ? (path == "/" ? "" : path) : path.substr(directory.size());
}

std::string Join(const std::string& directory, const std::string& rest) {
  if (directory == "/") return rest.empty() ? "/" : rest;
  return directory + rest;
}

int MountIdOf(int fd) {
  const Result<std::string> info =
      linux_sys::ReadSmallFile(AT_FDCWD, ("/proc/self/fdinfo/" + std::to_string(fd)).c_str());
  constexpr std::string_view kKey = "mnt_id:\t";
  const size_t key = info ? info->find(kKey) : std::string::npos;
  int id = -1;
  if (key != std::string::npos) std::from_chars(info->data() + key + kKey.size(), info->data() + info->size(), id);
  return id;
}

}  // namespace

Result<MountTable> MountTable::Read() {
  CAISSON_TRY(const std::string text, linux_sys::ReadSmallFile(AT_FDCWD, "/proc/self/mountinfo", kMaxMountInfo));
  return Parse(text);
}

MountTable MountTable::Parse(std::string_view text) {
  MountTable table;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    Mount mount;
    const std::string_view id = NextWord(line);
    if (std::from_chars(id.data(), id.data() + id.size(), mount.id).ec != std::errc()) continue;
    NextWord(line);  // parent
    mount.device = NextWord(line);
    mount.root = Unescape(NextWord(line));
    mount.point = Unescape(NextWord(line));
    if (mount.point.empty() || mount.point[0] != '/') continue;
    table.mounts_.push_back(std::move(mount));
  }
  return table;
}

std::vector<std::string> MountTable::NamesIn(const Mount& mount, const std::string& canonical) const {
  std::vector<std::string> names = {canonical};
  if (!IsAtOrBelow(canonical, mount.point)) return names;
  const std::string inside = Join(mount.root, Beyond(canonical, mount.point));
  for (const Mount& other : mounts_) {
    if (other.device != mount.device || !IsAtOrBelow(inside, other.root)) continue;
    std::string name = Join(other.point, Beyond(inside, other.root));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> MountTable::NamesOf(int fd, const std::string& canonical) const {
  const int id = MountIdOf(fd);
  auto mount = std::find_if(mounts_.begin(), mounts_.end(), [id](const Mount& one) { return one.id == id; });
  if (mount == mounts_.end()) {
    // Unmounted in the meantime, or no mount id: take the innermost mount around the name; of several, the topmost.
    for (auto one = mounts_.begin(); one != mounts_.end(); ++one) {
      if (!IsAtOrBelow(canonical, one->point)) continue;
      if (mount == mounts_.end() || one->point.size() >= mount->point.size()) mount = one;
    }
  }
  return mount == mounts_.end() ? std::vector<std::string>{canonical} : NamesIn(*mount, canonical);
}

std::vector<std::vector<std::string>> MountTable::NamesBelow(const std::string& canonical) const {
  std::vector<std::vector<std::string>> below;
  for (const Mount& mount : mounts_) {
    if (mount.point != canonical && IsAtOrBelow(mount.point, canonical)) below.push_back(NamesIn(mount, mount.point));
  }
  return below;
}

}  // namespace caisson::policy
