// The subject that did something, and its role.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace caisson::verify {

enum class Role { kSubmitter, kApprover, kOperator, kRunner, kService };

struct Actor {
  std::string subject;  // as authentication names it: "uid:1000", "alice@example.org"
  Role role = Role::kService;
};

inline constexpr size_t kMaxSubjectCharacters = 256;
inline constexpr size_t kMaxSentenceCharacters = 512;  // reasons and errors in the service's documents

Result<Actor> ReadActor(const nlohmann::json& value, const std::string& path);
nlohmann::json ToJson(const Actor& actor);

}  // namespace caisson::verify
