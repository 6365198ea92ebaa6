// A profile may hold any bytes. None may crash the reader; a refusal names a place, and an accepted profile is printed
// as text that means the same.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "policy/losses.h"
#include "policy/profile_json.h"
#include "policy/profile_reader.h"
#include "target.h"

namespace {

using caisson::Result;
using caisson::policy::Profile;
using caisson::policy::YamlNode;

Result<Profile> Read(std::string_view text) {
  CAISSON_TRY(const YamlNode document, caisson::policy::ReadYaml(text, "f"));
  return caisson::policy::ReadProfile(document, "f", *caisson::policy::FindBuiltIn("balanced"));
}

}  // namespace

CAISSON_FUZZ_TARGET(profile) {
  if (size > caisson::policy::kMaxYamlBytes) return 0;
  const Result<Profile> profile = Read({reinterpret_cast<const char*>(bytes), size});
  if (!profile) {
    const std::string& message = profile.error().message;
    CAISSON_CHECK(profile.error().kind == caisson::ErrorKind::kInvalid);
    CAISSON_CHECK(message.rfind("f:", 0) == 0 && message[2] >= '1' && message[2] <= '9');
    CAISSON_CHECK(caisson::EscapeForTerminal(message) == message);
    return 0;
  }
  for (const caisson::policy::LimitField& field : caisson::policy::kLimitFields) {
    const int64_t value = profile->limits.*field.value;
    const bool unset = field.optional && value == caisson::policy::kNoLimit;
    CAISSON_CHECK(unset || (value >= field.least && value <= field.most));
  }
  (void)caisson::policy::FindLosses(*profile);
  const std::string text = ToYaml(*profile);
  CAISSON_CHECK(caisson::EscapeForTerminal(text, caisson::LineBreaks::kKeep) == text);
  if (text.size() > caisson::policy::kMaxYamlBytes) return 0;  // escapes take more room than what they stand for
  const Result<Profile> again = Read(text);
  CAISSON_CHECK(again.has_value());
  CAISSON_CHECK(nlohmann::json(ToJson(*again)) == nlohmann::json(ToJson(*profile)));
  return 0;
}
