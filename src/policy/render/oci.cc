#include "policy/render.h"

namespace caisson::policy::render {

Result<std::string> Oci(const Profile&) { return Error::Unsupported("oci: not rendered yet"); }

}  // namespace caisson::policy::render
