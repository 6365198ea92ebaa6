#include "policy/render.h"

namespace caisson::policy::render {

Result<std::string> Seccomp(const Profile&) { return Error::Unsupported("seccomp: not rendered yet"); }

}  // namespace caisson::policy::render
