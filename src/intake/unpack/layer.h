// Reads the tar file of an image's root or of one of its layers from a stream, in constant memory. Like unpack.h,
// linked only into the helper and a fuzz target.
#pragma once

#include <functional>

#include "base/result.h"
#include "intake/frames.h"
#include "intake/tree_rules.h"
#include "intake/unpack/decompressor.h"

namespace caisson::intake::unpack {

// Passes on frames, in the archive's order: for a file its frame and then its bytes in frames of kMore; at last kHash.
// Reads `input` to its end. Names and links are passed on as they are: their rules depend on the layers below, which
// only the receiver knows (image/tree.h). Devices, pipes and sockets are left out, as are owners, set-id bits, extended
// attributes and all of a mode but "executable".
//
// Errors are ErrorKind::kInvalid. The number of entries, their bytes and the ratio to the bytes read are bounded here,
// so that a bomb ends at the first byte too many.
Status UnpackLayer(ByteSource input, const Limits& limits, const std::function<Status(const Frame&)>& deliver);

}  // namespace caisson::intake::unpack
