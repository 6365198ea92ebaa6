// Profiles for tests: a built-in one with a few lines of YAML on top.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "policy/profile_reader.h"

namespace caisson::support {

inline Result<policy::Profile> ReadOnTop(const std::string& yaml, const char* parent = "balanced") {
  CAISSON_TRY(const policy::YamlNode document, policy::ReadYaml("version: 1\nname: mine\n" + yaml, "mine.yaml"));
  return policy::ReadProfile(document, "mine.yaml", *policy::FindBuiltIn(parent));
}

inline policy::Profile OnTop(const std::string& yaml, const char* parent = "balanced") {
  Result<policy::Profile> profile = ReadOnTop(yaml, parent);
  EXPECT_TRUE(profile) << profile.error().message;
  return profile ? *std::move(profile) : *policy::FindBuiltIn(parent);
}

}  // namespace caisson::support
