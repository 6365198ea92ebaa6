// Writes an image as an archive that OCI tools, Docker and `caisson image import` read. Importing it gives the same
// digest.
#pragma once

#include <string>

#include "base/result.h"
#include "image/store.h"

namespace caisson::image {

// `path` must not exist. The layer is written beside it first, because its hash stands in front of it.
Status Export(const Store& store, const std::string& reference, const std::string& path);

}  // namespace caisson::image
