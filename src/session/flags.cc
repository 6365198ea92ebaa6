#include "session/flags.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace caisson::session {

namespace {

struct KnownName {
  const char* name;  // lower case. "x/": a directory of that name and what is below; "x/y": those two in this order;
                     // "*.x": names that end so; "x*": names that begin so
  ChangeFlag flag;
};

constexpr KnownName kKnownNames[] = {
    {".git/", ChangeFlag::kGit},
    {".gitmodules", ChangeFlag::kGit},
    {".gitattributes", ChangeFlag::kGit},
    {".githooks/", ChangeFlag::kHook},
    {".husky/", ChangeFlag::kHook},
    {".pre-commit-config.yaml", ChangeFlag::kHook},
    {".pre-commit-config.yml", ChangeFlag::kHook},
    {".huskyrc*", ChangeFlag::kHook},
    {"lefthook.*", ChangeFlag::kHook},
    {".lefthook*", ChangeFlag::kHook},
    {".overcommit.yml", ChangeFlag::kHook},
    {".lintstagedrc*", ChangeFlag::kHook},
    {".envrc", ChangeFlag::kEnvironmentFile},
    {".env", ChangeFlag::kEnvironmentFile},
    {".env.*", ChangeFlag::kEnvironmentFile},
    {".direnv/", ChangeFlag::kEnvironmentFile},
    {".tool-versions", ChangeFlag::kEnvironmentFile},
    {".mise*", ChangeFlag::kEnvironmentFile},
    {"mise.toml", ChangeFlag::kEnvironmentFile},
    {".bashrc", ChangeFlag::kEnvironmentFile},
    {".bash_profile", ChangeFlag::kEnvironmentFile},
    {".profile", ChangeFlag::kEnvironmentFile},
    {".zshrc", ChangeFlag::kEnvironmentFile},
    {".zshenv", ChangeFlag::kEnvironmentFile},
    {".vscode/", ChangeFlag::kEditor},
    {".idea/", ChangeFlag::kEditor},
    {".devcontainer/", ChangeFlag::kEditor},
    {".devcontainer.json", ChangeFlag::kEditor},
    {".fleet/", ChangeFlag::kEditor},
    {".zed/", ChangeFlag::kEditor},
    {".vim/", ChangeFlag::kEditor},
    {".vimrc", ChangeFlag::kEditor},
    {".nvimrc", ChangeFlag::kEditor},
    {".nvim.lua", ChangeFlag::kEditor},
    {".exrc", ChangeFlag::kEditor},
    {".dir-locals.el", ChangeFlag::kEditor},
    {"*.code-workspace", ChangeFlag::kEditor},
    {".mcp.json", ChangeFlag::kAgentConfiguration},
    {".claude/", ChangeFlag::kAgentConfiguration},
    {".codex/", ChangeFlag::kAgentConfiguration},
    {".cursor/", ChangeFlag::kAgentConfiguration},
    {".gemini/", ChangeFlag::kAgentConfiguration},
    {".cursorrules", ChangeFlag::kAgentConfiguration},
    {"agents.md", ChangeFlag::kAgentConfiguration},
    {"claude.md", ChangeFlag::kAgentConfiguration},
    {".github/workflows", ChangeFlag::kCi},
    {".github/actions", ChangeFlag::kCi},
    {".gitea/workflows", ChangeFlag::kCi},
    {".forgejo/workflows", ChangeFlag::kCi},
    {".gitlab-ci*", ChangeFlag::kCi},
    {".gitlab/", ChangeFlag::kCi},
    {".circleci/", ChangeFlag::kCi},
    {".buildkite/", ChangeFlag::kCi},
    {".woodpecker/", ChangeFlag::kCi},
    {".woodpecker.y*", ChangeFlag::kCi},
    {".travis.yml", ChangeFlag::kCi},
    {".drone.yml", ChangeFlag::kCi},
    {"jenkinsfile*", ChangeFlag::kCi},
    {"azure-pipelines*", ChangeFlag::kCi},
    {"bitbucket-pipelines.yml", ChangeFlag::kCi},
    {"cloudbuild.y*", ChangeFlag::kCi},
    {"appveyor.yml", ChangeFlag::kCi},
    {".npmrc", ChangeFlag::kPackageScript},
    {".yarnrc*", ChangeFlag::kPackageScript},
    {".pnpmfile.cjs", ChangeFlag::kPackageScript},
    {"binding.gyp", ChangeFlag::kPackageScript},
    {"setup.py", ChangeFlag::kPackageScript},
    {"build.rs", ChangeFlag::kPackageScript},
    {".cargo/", ChangeFlag::kPackageScript},
};

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lowered;
}

std::vector<std::string> Components(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool Matches(std::string_view known, const std::vector<std::string>& parts) {
  const size_t slash = known.find('/');
  if (slash == known.size() - 1) {  // a directory anywhere on the way
    return std::find(parts.begin(), parts.end(), known.substr(0, slash)) != parts.end();
  }
  if (slash != std::string_view::npos) {
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      if (parts[i] == known.substr(0, slash) && parts[i + 1] == known.substr(slash + 1)) return true;
    }
    return false;
  }
  const std::string& name = parts.back();
  if (known.front() == '*') {
    const std::string_view end = known.substr(1);
    return name.size() > end.size() && std::string_view(name).substr(name.size() - end.size()) == end;
  }
  if (known.back() == '*') return name.compare(0, known.size() - 1, known.substr(0, known.size() - 1)) == 0;
  return name == known;
}

}  // namespace

bool IsBelowGit(std::string_view path) {
  const std::vector<std::string> parts = Components(Lowered(path));
  return std::find(parts.begin(), parts.end(), ".git") != parts.end();
}

std::vector<ChangeFlag> FlagsOfPath(std::string_view path) {
  const std::vector<std::string> parts = Components(Lowered(path));
  std::vector<ChangeFlag> flags;
  if (parts.empty()) return flags;
  for (const KnownName& known : kKnownNames) {
    if (Matches(known.name, parts) && std::find(flags.begin(), flags.end(), known.flag) == flags.end()) {
      flags.push_back(known.flag);
    }
  }
  std::sort(flags.begin(), flags.end());
  return flags;
}

bool LinkMayLeave(std::string_view path, std::string_view target) {
  if (target.empty() || target.front() == '/') return true;
  size_t ups = 0;
  bool named = false;
  for (const std::string& part : Components(target)) {
    if (part == ".") continue;
    if (part != "..") {
      named = true;
    } else if (named) {
      return true;
    } else {
      ++ups;
    }
  }
  return ups > static_cast<size_t>(std::count(path.begin(), path.end(), '/'));
}

bool PackageScriptsDiffer(std::string_view before, std::string_view after) {
  const auto scripts = [](std::string_view text) -> std::optional<nlohmann::json> {
    if (text.empty()) return nlohmann::json();
    const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
    if (!document.is_object()) return std::nullopt;
    const auto found = document.find("scripts");
    return found == document.end() ? nlohmann::json() : *found;
  };
  const std::optional<nlohmann::json> old_scripts = scripts(before), new_scripts = scripts(after);
  return !old_scripts || !new_scripts || *old_scripts != *new_scripts;
}

}  // namespace caisson::session
