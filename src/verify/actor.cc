#include "verify/actor.h"

#include <array>
#include <nlohmann/json.hpp>

#include "verify/json_fields.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

Result<Role> ReadRole(const json& value, const std::string& path) {
  CAISSON_TRY(const size_t choice, ReadChoice(value, path, {"submitter", "approver", "operator", "runner", "service"}));
  return static_cast<Role>(choice);
}

const char* RoleName(Role role) {
  constexpr std::array kNames = {"submitter", "approver", "operator", "runner", "service"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace

Result<Actor> ReadActor(const json& value, const std::string& path) {
  CAISSON_TRY_VOID(ExpectObject(value, path, {"subject", "role"}));
  Actor actor;
  CAISSON_TRY(actor.subject, ReadRequired(value, path, "subject", ReadSentence, kMaxSubjectCharacters));
  CAISSON_TRY(actor.role, ReadRequired(value, path, "role", ReadRole));
  return actor;
}

json ToJson(const Actor& actor) { return {{"subject", actor.subject}, {"role", RoleName(actor.role)}}; }

}  // namespace caisson::verify
