#include "policy/render.h"

namespace caisson::policy::render {

Result<std::string> AppArmor(const Profile&) { return Error::Unsupported("apparmor: not rendered yet"); }

}  // namespace caisson::policy::render
