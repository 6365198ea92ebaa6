#include "runtime/engine/stream_decoder.h"

#include <algorithm>

namespace caisson::runtime::engine {

Status StreamDecoder::Take(std::string_view bytes, const Sink& sink) {
  if (failed_) return Error::Invalid("attached stream: cannot be read any further");
  while (!bytes.empty()) {
    if (left_ > 0) {
      const std::string_view piece = bytes.substr(0, left_);
      left_ -= static_cast<uint32_t>(piece.size());
      bytes.remove_prefix(piece.size());
      sink(stream_, piece);
      continue;
    }
    header_[header_size_++] = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    if (header_size_ < kHeaderBytes) continue;
    header_size_ = 0;
    for (size_t i = 4; i < kHeaderBytes; ++i) left_ = left_ << 8 | header_[i];
    failed_ = header_[0] > static_cast<unsigned char>(Stream::kError) || header_[1] != 0 || header_[2] != 0 ||
              header_[3] != 0 || left_ > kMaxPieceBytes;
    if (failed_) return Error::Invalid("attached stream: not one of an engine (is the container a terminal?)");
    stream_ = static_cast<Stream>(header_[0]);
  }
  return {};
}

}  // namespace caisson::runtime::engine
