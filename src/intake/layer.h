// Unpacks the tar file of an image's root or of one of its layers, which may be large: nothing is held in memory but a
// piece of one file. As with intake.h, caisson-intake parses the bytes, shut in, and its output is untrusted: the sink
// must judge every name, and the bounds are checked again here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "intake/tree_rules.h"

namespace caisson::intake {

// Receives the entries of a layer, in its order. An error ends the unpacking and is passed on.
class LayerSink {
 public:
  virtual ~LayerSink() = default;
  virtual Status OnDirectory(const std::string& path) = 0;
  // The bytes follow with OnBytes, until the next entry or OnEnd. `time`: of its last change, in seconds.
  virtual Status OnFile(const std::string& path, bool executable, int64_t time) = 0;
  virtual Status OnBytes(std::string_view bytes) = 0;
  virtual Status OnSymlink(const std::string& path, const std::string& target) = 0;
  virtual Status OnHardLink(const std::string& path, const std::string& other) = 0;
  virtual Status OnLeftOut(const std::string& path, const std::string& why) = 0;
  virtual Status OnEnd() = 0;  // no entry follows
};

struct LayerFacts {
  std::string sha256;    // of the bytes of the file
  std::string unpacked;  // of the tar file in it, as the helper says
  uint64_t bytes = 0;    // of the file
};

// Reads a regular file from its beginning: a tar file, bare or within gzip, xz or zstd. Errors: kInvalid (the file),
// kUnsupported (the helper is not installed), kSystem.
Result<LayerFacts> UnpackLayer(int fd, const Limits& limits, LayerSink& sink);

}  // namespace caisson::intake
