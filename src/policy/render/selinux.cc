#include "policy/render.h"

namespace caisson::policy::render {

Result<std::string> SeLinux(const Profile&) { return Error::Unsupported("selinux: not rendered yet"); }

}  // namespace caisson::policy::render
