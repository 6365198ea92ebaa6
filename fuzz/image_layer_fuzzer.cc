// Any bytes may be the layer of an image. The stream that the helper sends stays within the bounds and ends with a
// hash.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fault.h"
#include "intake/unpack/layer.h"
#include "intake/unpack/unpack.h"
#include "target.h"

CAISSON_FUZZ_TARGET(image_layer) {
  using namespace caisson::intake;
  static const bool prepared = bool(unpack::PrepareLibrary());
  CAISSON_CHECK(prepared);
  Limits limits;
  limits.entries = 64;
  limits.bytes = limits.file_bytes = 1 << 20;
  limits.ratio_free = 1 << 16;
  std::string_view left(reinterpret_cast<const char*>(bytes), size);
  uint64_t entries = 0, file_bytes = 0;
  bool in_file = false, ended = false;
  const caisson::Status status = unpack::UnpackLayer(
      [&]() -> caisson::Result<std::string_view> {  // in small pieces, as they may come
        const std::string_view piece = left.substr(0, std::min<size_t>(left.size(), 700));
        left.remove_prefix(piece.size());
        return piece;
      },
      limits,
      [&](const Frame& frame) -> caisson::Status {
        CAISSON_CHECK(!ended);
        ended = frame.kind == FrameKind::kHash;
        if (ended) {
          CAISSON_CHECK(frame.body.size() == 64);
        } else if (frame.kind == FrameKind::kMore) {
          CAISSON_CHECK(in_file);
          file_bytes += frame.body.size();
          CAISSON_CHECK(file_bytes <= limits.file_bytes);
        } else {
          CAISSON_CHECK(++entries <= limits.entries && frame.name.size() <= limits.path_bytes);
          CAISSON_CHECK(frame.body.size() <= limits.path_bytes);
          in_file = frame.kind == FrameKind::kFile || frame.kind == FrameKind::kExecutable;
          file_bytes = 0;
        }
        return {};
      });
  if (!status) CAISSON_CHECK(!status.error().message.empty());
  if (status) CAISSON_CHECK(ended);
  return 0;
}
