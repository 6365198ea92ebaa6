// Finds profiles by name: the built-in profiles, and the operator's profiles in one directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/profile.h"

namespace caisson::policy {

inline constexpr char kProfileDirectory[] = "/etc/caisson/profiles";

class ProfileStore {
 public:
  explicit ProfileStore(std::string directory = kProfileDirectory) : directory_(std::move(directory)) {}

  // A built-in profile or NAME.yaml of the directory. A name is not a path; requests may use only names.
  Result<Profile> Find(const std::string& name) const;

  // The same, or a file when the text has a slash or ends in .yaml; only an operator may use this. The parent that the
  // file extends is searched among the built-in profiles, beside the file, and in the directory.
  Result<Profile> FindOrLoad(const std::string& name_or_file) const;

  // Names of the built-in profiles, then of the files in the directory, both sorted. The files may still be faulty.
  std::vector<std::string> Names() const;

 private:
  Result<Profile> Load(const std::string& path, std::vector<std::string>& chain) const;

  std::string directory_;
};

// The whole of a regular file of at most kMaxYamlBytes.
Result<std::string> ReadPolicyFile(const std::string& path);

}  // namespace caisson::policy
