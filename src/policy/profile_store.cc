#include "policy/profile_store.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/utf8.h"
#include "base/words.h"
#include "linux/files.h"
#include "policy/profile_reader.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxChain = 8;
constexpr std::string_view kSuffix = ".yaml";

bool IsFileName(std::string_view text) {
  return text.find('/') != std::string_view::npos ||
         (text.size() > kSuffix.size() && text.substr(text.size() - kSuffix.size()) == kSuffix);
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

Result<std::string> ReadPolicyFile(const std::string& path) { return linux_sys::ReadDocument(path, kMaxYamlBytes); }

Result<Profile> ProfileStore::Find(const std::string& name) const {
  if (const Profile* built_in = FindBuiltIn(name)) return *built_in;
  const std::string path = directory_ + "/" + name + std::string(kSuffix);
  if (IsWord(name, "._-", 64) && name[0] != '.' && Exists(path)) {
    std::vector<std::string> chain;
    return Load(path, chain);
  }
  std::string known;
  const std::vector<std::string> names = Names();
  for (const std::string& candidate : names) known += (known.empty() ? "" : ", ") + candidate;
  return Error::Invalid("profile: there is none named " + Quoted(name) + "; known: " + known);
}

Result<Profile> ProfileStore::FindOrLoad(const std::string& name_or_file) const {
  if (!IsFileName(name_or_file)) return Find(name_or_file);
  std::vector<std::string> chain;
  return Load(name_or_file, chain);
}

Result<Profile> ProfileStore::Load(const std::string& path, std::vector<std::string>& chain) const {
  CAISSON_TRY(const std::string text, ReadPolicyFile(path));
  CAISSON_TRY(const YamlNode document, ReadYaml(text, path));
  CAISSON_TRY(const ProfileHead head, ReadProfileHead(document, path));
  if (FindBuiltIn(head.name) != nullptr)
    return FaultAt(path, *document.Find("name"), Quoted(head.name) + " is the name of a built-in profile");
  if (head.extends.empty()) {
    CAISSON_TRY_VOID(ReadProfile(document, path, BuiltInProfiles().front()));  // it may only be misspelt
    return FaultAt(path, document,
                   "extends is missing: a profile builds on a built-in one, for example \"extends: balanced\"");
  }
  chain.push_back(head.name);
  if (const Profile* parent = FindBuiltIn(head.extends)) return ReadProfile(document, path, *parent);
  std::string cycle;
  for (const std::string& name : chain) cycle += name + " -> ";
  if (std::find(chain.begin(), chain.end(), head.extends) != chain.end())
    return FaultAt(path, head.extends_at, "extends runs in a circle: " + cycle + head.extends);
  if (chain.size() == kMaxChain)
    return FaultAt(path, head.extends_at, "extends goes too deep: " + cycle + head.extends);
  const size_t slash = path.rfind('/');
  const std::string beside = slash == std::string::npos ? "." : path.substr(0, slash);
  for (const std::string& directory : {beside, directory_}) {
    const std::string parent_path = directory + "/" + head.extends + std::string(kSuffix);
    if (!Exists(parent_path)) continue;
    CAISSON_TRY(const Profile parent, Load(parent_path, chain));
    return ReadProfile(document, path, parent);
  }
  return FaultAt(path, head.extends_at,
                 "extends " + Quoted(head.extends) + ", which is neither built in nor a file beside this one");
}

std::vector<std::string> ProfileStore::Names() const {
  std::vector<std::string> names;
  for (const Profile& profile : BuiltInProfiles()) names.push_back(profile.name);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(directory_.c_str()), ::closedir);
  if (!directory) return names;
  std::vector<std::string> own;
  while (const struct dirent* entry = ::readdir(directory.get())) {
    const std::string_view file = entry->d_name;
    if (file[0] != '.' && IsFileName(file)) own.emplace_back(file.substr(0, file.size() - kSuffix.size()));
  }
  std::sort(own.begin(), own.end());
  names.insert(names.end(), own.begin(), own.end());
  return names;
}

}  // namespace caisson::policy
