// Reads the answer to one HTTP request. The other end is not trusted: the head is bounded, the body is passed on as it
// arrives and bounded by the caller, and everything ambiguous is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace caisson::client {

class ReplyReader {
 public:
  using Sink = std::function<Status(std::string_view)>;

  // True when the answer is whole; what follows it is an error. Interim answers (100) are passed over.
  Result<bool> Take(std::string_view bytes, const Sink& body);
  // The connection ended. An error unless the answer was whole.
  Status End() const;

  bool has_head() const { return state_ != State::kHead; }
  int status() const { return status_; }
  std::optional<std::string> Field(std::string_view lower_case_name) const;

 private:
  enum class State : uint8_t { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kLastLine, kWhole };

  Status ReadHead(std::string_view head);
  Status ReadChunkSize(std::string_view line);
  Status BeginBody();
  Result<std::optional<std::string>> TakeLine();

  State state_ = State::kHead;
  std::string buffer_;
  int status_ = 0;
  std::vector<std::pair<std::string, std::string>> fields_;
  int64_t left_ = 0;  // of the body, or of the chunk
};

}  // namespace caisson::client
