// Which changes a person should look at twice: names that the user's own programs obey, and links that lead out.
#pragma once

#include <string_view>
#include <vector>

#include "session/change.h"

namespace caisson::session {

// True if a component of the path is .git, in any case: some file systems do not distinguish cases.
bool IsBelowGit(std::string_view path);

// By the path alone.
std::vector<ChangeFlag> FlagsOfPath(std::string_view path);

// True unless the target surely stays in the project, judged by its spelling: relative, ".." only at its beginning and
// not more often than `path` has directories. A ".." after a name cannot be judged, because the name may be a link.
bool LinkMayLeave(std::string_view path, std::string_view target);

// Whether the `scripts` of a package.json differ; also true where either cannot be parsed.
bool PackageScriptsDiffer(std::string_view before, std::string_view after);

}  // namespace caisson::session
