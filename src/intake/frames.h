// The helper's output to the process that started it, over a pipe: frames, one per entry of the tree, and a last one
// that marks the end. A frame is
//
//   kind (1 byte)   length of name (4 bytes)   length of body (8 bytes)   name   body          lengths little-endian
//
// The reader trusts nothing: it checks lengths before it stores anything, and a stream that lacks its last frame, or
// continues after it, is an error.
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
  // In the stream of a layer, where the body of a file's frame is the time of its last change in seconds:
  kMore = '+',      // bytes of the file before it
  kHardLink = 'h',  // the body is the name of the other file
  kLeftOut = '-',   // not passed on; the body says why
  kHash = '#',      // the body is the SHA-256 of the unpacked tar file
  kEnd = '.',       // all went well
  kRefused = '!',   // the last: the archive is at fault; the body says why
  kFailed = '?',    // the last: the helper could not do its work; the body says why
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
  // The stream ended. An error unless the last frame was read.
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
