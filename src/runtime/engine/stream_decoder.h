// Takes apart the stream that an engine sends for an attached container: pieces of standard output and standard error,
// each behind a header of eight bytes (the stream's number, three zeros, the length with its highest byte first).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace caisson::runtime::engine {

class StreamDecoder {
 public:
  // Engines send pieces of some tens of kilobytes. Bodies are passed on as they arrive, so no length takes memory.
  static constexpr uint32_t kMaxPieceBytes = uint32_t{64} << 20;

  enum class Stream : uint8_t { kInput = 0, kOutput = 1, kError = 2 };
  using Sink = std::function<void(Stream, std::string_view)>;

  // The bytes may be hostile. An error is final: the stream cannot be read any further.
  Status Take(std::string_view bytes, const Sink& sink);
  // No piece has begun and not ended.
  bool is_between_pieces() const { return header_size_ == 0 && left_ == 0; }

 private:
  static constexpr size_t kHeaderBytes = 8;

  unsigned char header_[kHeaderBytes] = {};
  size_t header_size_ = 0;
  Stream stream_ = Stream::kOutput;
  uint32_t left_ = 0;  // of the piece
  bool failed_ = false;
};

}  // namespace caisson::runtime::engine
