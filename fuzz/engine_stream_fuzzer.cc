// An engine may send any bytes for an attached container. What is taken from them does not depend on how they are
// split, is never more than was sent, and an error is final.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "fault.h"
#include "runtime/engine/stream_decoder.h"
#include "target.h"

namespace {

using caisson::runtime::engine::StreamDecoder;

struct Taken {
  bool failed = false;
  std::string output, error;
};

Taken Take(std::string_view input, size_t step) {
  Taken taken;
  StreamDecoder decoder;
  const auto keep = [&](StreamDecoder::Stream stream, std::string_view piece) {
    (stream == StreamDecoder::Stream::kOutput ? taken.output : taken.error).append(piece);
  };
  for (size_t at = 0; at < input.size(); at += step) {
    const caisson::Status status = decoder.Take(input.substr(at, step), keep);
    CAISSON_CHECK(!taken.failed || !status);
    if (!status) CheckFault(status.error());
    taken.failed = !status;
  }
  CAISSON_CHECK(taken.output.size() + taken.error.size() <= input.size());
  return taken;
}

}  // namespace

CAISSON_FUZZ_TARGET(engine_stream) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const Taken whole = Take(input, size == 0 ? 1 : size);
  const Taken pieces = Take(input, 1);
  CAISSON_CHECK(whole.failed == pieces.failed && whole.output == pieces.output && whole.error == pieces.error);
  return 0;
}
