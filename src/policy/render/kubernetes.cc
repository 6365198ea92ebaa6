#include "policy/render.h"

namespace caisson::policy::render {

Result<std::string> Kubernetes(const Profile&) { return Error::Unsupported("kubernetes: not rendered yet"); }

}  // namespace caisson::policy::render
