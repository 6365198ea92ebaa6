// Reads isolation profiles. A file is accepted completely or refused with the line and column of its first fault; a
// profile is never loaded in part.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/profile.h"
#include "policy/syntax.h"
#include "policy/yaml_document.h"

namespace caisson::policy {

// The part of a profile that names it and its parent, for a caller that must find the parent first.
struct ProfileHead {
  std::string name;
  std::string extends;  // empty: none
  YamlNode extends_at;
};
Result<ProfileHead> ReadProfileHead(const YamlNode& document, const std::string& file);

// Applies the document on top of `parent`: maps are merged key by key, everything else is replaced.
Result<Profile> ReadProfile(const YamlNode& document, const std::string& file, const Profile& parent);

// "512M", "1.5", "30s" in the limit's own unit; a plain number is in the unit of its name. The fault says which
// spellings are known.
Result<int64_t> ReadLimit(const LimitField& field, std::string_view text);

// "is no system call …; did you mean …?"
Fault FaultInSyscallName(const std::string& name);

}  // namespace caisson::policy
