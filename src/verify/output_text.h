// The output of the checks of a run, in the form that a result document has.
//
// `stdout` and `stderr` are text: the output, with U+FFFD for bytes that are not UTF-8 and a line that says how much
// was left out. JSON spells most control characters with six bytes, so a flood of them would grow to six times its
// size. Where the text would be more than twice as long as the bytes, it holds only their beginning and their end, and
// `stdout_base64` or `stderr_base64` has all bytes that were kept.
//
// This class holds no more than a few kilobytes beyond the memory of the outcome itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/outcome.h"
#include "base/result.h"

namespace caisson::verify {

class OutputText {
 public:
  using Sink = std::function<Status(std::string_view)>;

  // `streams` has the same stream of every check, in order, and must outlive this object.
  explicit OutputText(std::vector<const CapturedStream*> streams);

  // Whether the text is cut and the bytes are also given in base64.
  bool is_binary() const { return is_binary_; }
  // Calls `sink` with the text, which is valid UTF-8, piece by piece.
  Status WriteText(const Sink& sink) const;
  // The same, escaped as the inside of a JSON string.
  Status WriteJsonText(const Sink& sink) const;
  // The original bytes, with the lines that say how much was left out.
  Status WriteBytes(const Sink& sink) const;
  Status WriteBase64(const Sink& sink) const;
  uint64_t bytes() const { return bytes_; }  // of WriteBytes

 private:
  // Bytes that belong together: those of one check.
  using Pieces = std::vector<std::string_view>;
  std::vector<Pieces> CutChecks() const;

  std::vector<std::string> notes_;  // what was left out; referred to by checks_
  std::vector<Pieces> checks_;
  uint64_t bytes_ = 0;
  bool is_binary_ = false;
  std::string cut_note_;
};

}  // namespace caisson::verify
