// Bodies outside memory: a body that is too large for a string is kept in a file and sent while it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "service/http/message.h"

namespace caisson::service::http {

// A request or an answer larger than this is kept in a file.
inline constexpr int64_t kMaxBodyInMemory = int64_t{256} << 10;
// A body that is made while it is sent comes in pieces of about this size.
inline constexpr int64_t kPieceBytes = int64_t{64} << 10;

// Texts and files, one behind the other.
class SegmentStream : public BodyStream {
 public:
  void Add(std::string text);
  void Add(UniqueFd file, int64_t bytes, int64_t offset = 0);
  int64_t bytes() const { return bytes_; }  // of all of them

  Piece Next() override;

 private:
  struct Segment {
    std::string text;
    UniqueFd file;  // none: `text`
    int64_t left = 0;
    int64_t offset = 0;
  };
  std::vector<Segment> segments_;
  size_t at_ = 0;
  int64_t bytes_ = 0;
};

// The whole body of a request, from memory or from its file. `held` keeps what was read.
Result<std::string_view> WholeBody(const Request& request, std::string& held);

// `response` with its body in a file of `directory`.
Result<Streamed> Spooled(Response response, const std::string& directory);

}  // namespace caisson::service::http
