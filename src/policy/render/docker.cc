#include "policy/render.h"

namespace caisson::policy::render {

Result<std::string> Docker(const Profile&) { return Error::Unsupported("docker: not rendered yet"); }

}  // namespace caisson::policy::render
