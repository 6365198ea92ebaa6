// What the helper says to whoever started it, over a pipe: frames, one per entry of the tree, and a last one that says
// that all was said. A frame is
//
//   kind (1 byte)   length of name (4 bytes)   length of body (8 bytes)   name   body          lengths little-endian
//
// The reader trusts nothing: lengths are judged before anything is kept, and a stream that does not end with its last
// frame, or goes on after it, is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson::intake {

enum class FrameKind : char {
  kFile = 'f',
  kExecutable = 'x',
  kDirectory = 'd',
  kSymlink = 'l',  // the body is its target
  kEnd = '.',      // all went well
  kRefused = '!',  // the last: the archive is at fault; the body says why
  kFailed = '?',   // the last: the helper could not do its work; the body says why
};

struct Frame {
  FrameKind kind = FrameKind::kEnd;
  std::string name;
  std::string body;
};

std::string Encode(const Frame& frame);

class FrameReader {
 public:
  // `deliver` gets each frame; its errors are passed on.
  FrameReader(size_t max_name, uint64_t max_body, std::function<Status(Frame)> deliver)
      : max_name_(max_name), max_body_(max_body), deliver_(std::move(deliver)) {}

  Status Feed(std::string_view bytes);
  // The stream is over. An error unless its last frame was there.
  Status Finish() const;

 private:
  Status ReadHead();

  size_t max_name_;
  uint64_t max_body_;
  std::function<Status(Frame)> deliver_;
  std::string head_;
  Frame frame_;  // the one being read, once its head is complete
  size_t name_size_ = 0;
  uint64_t body_size_ = 0;
  bool ended_ = false;
};

}  // namespace caisson::intake
