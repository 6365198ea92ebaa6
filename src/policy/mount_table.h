// The mounts of this process, and the other names that a path has because of them: a bind mount gives the same
// directory a second name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::policy {

class MountTable {
 public:
  static Result<MountTable> Read();
  static MountTable Parse(std::string_view mountinfo);

  // All absolute names of the file behind `fd`; `canonical`, its name, comes first.
  std::vector<std::string> NamesOf(int fd, const std::string& canonical) const;
  // The mount points strictly below `canonical`, each with all the names of what is mounted there.
  std::vector<std::vector<std::string>> NamesBelow(const std::string& canonical) const;

 private:
  struct Mount {
    int id = 0;
    std::string device;  // "8:1"
    std::string root;    // of the mount, within its file system
    std::string point;
  };

  std::vector<std::string> NamesIn(const Mount& mount, const std::string& canonical) const;

  std::vector<Mount> mounts_;
};

}  // namespace caisson::policy
