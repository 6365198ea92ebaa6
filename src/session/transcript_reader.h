// Reads and checks transcripts (transcript.h). The file may be hostile: every line is bounded and judged before it is
// used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "session/transcript_format.h"

namespace caisson::session {

// Lines of a file that may grow while it is read.
class TranscriptLines {
 public:
  static Result<TranscriptLines> Open(int directory_fd, const std::string& name);

  // The next line without its end; nothing at the end of the file, or when the last line is not complete yet. Another
  // call then reads what was appended since.
  Result<std::optional<std::string>> Next();
  int64_t number() const { return number_; }  // of the line that Next gave last, counted from 1
  // The last line is not complete: its writer died, or is at work.
  bool ends_torn() const { return begin_ < buffer_.size(); }

 private:
  TranscriptLines() = default;

  UniqueFd fd_;
  int64_t read_ = 0;
  std::string buffer_;
  size_t begin_ = 0;
  size_t searched_ = 0;
  int64_t number_ = 0;
};

class TranscriptReader {
 public:
  static Result<TranscriptReader> Open(int directory_fd, const std::string& name);

  const TranscriptHeader& header() const { return header_; }
  // Nothing at the end; another call then reads what was appended since. Errors are ErrorKind::kInvalid and begin with
  // "line N: ".
  Result<std::optional<TranscriptEvent>> Next();
  bool ends_torn() const { return lines_.ends_torn(); }

 private:
  explicit TranscriptReader(TranscriptLines lines) : lines_(std::move(lines)) {}
  Result<TranscriptEvent> Complete(TranscriptEvent event);

  TranscriptLines lines_;
  TranscriptHeader header_;
  int64_t time_us_ = 0;
  uint32_t command_ = 0;
  std::optional<std::string> raw_;  // of the next event
};

struct TranscriptVerification {
  struct Finding {
    int64_t line = 0;  // counted from 1
    std::string message;
  };

  TranscriptDigest found;
  std::optional<Finding> finding;  // none: intact
};

// Compares the file with what the session's events say of it: `checkpoints` in the order they were made. If `complete`,
// the last of them is of the finished transcript, and nothing may follow it. Names the first line that was changed, as
// exactly as can be told: if check lines were forged too, only the range between two checkpoints is known, and its
// first line is named. An Error means only that the file cannot be read.
Result<TranscriptVerification> VerifyTranscript(int directory_fd, const std::string& name,
                                                const std::vector<TranscriptDigest>& checkpoints, bool complete);

}  // namespace caisson::session
