// A path in the first line, mountinfo after it. Whatever the table says, a path keeps its own name, first and once, and
// every other name is absolute.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "policy/mount_table.h"
#include "policy/syntax.h"
#include "target.h"

CAISSON_FUZZ_TARGET(mount_table) {
  if (size > 4096) return 0;  // the work grows with the square of the number of mounts
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const size_t newline = text.find('\n');
  if (newline == std::string_view::npos || text[0] != '/') return 0;
  const std::string path(text.substr(0, newline));
  const caisson::policy::MountTable table = caisson::policy::MountTable::Parse(text.substr(newline + 1));
  const auto check = [](const std::vector<std::string>& names, const std::string& own) {
    CAISSON_CHECK(!names.empty() && names.front() == own);
    CAISSON_CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
    for (const std::string& name : names) CAISSON_CHECK(!name.empty() && name[0] == '/');
  };
  check(table.NamesOf(-1, path), path);
  for (const std::vector<std::string>& names : table.NamesBelow(path)) {
    CAISSON_CHECK(!names.empty() && names.front() != path && caisson::policy::IsAtOrBelow(names.front(), path));
    check(names, names.front());
  }
  return 0;
}
