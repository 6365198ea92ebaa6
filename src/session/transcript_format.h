// The lines of a transcript: an asciicast v3 whose comment lines "#caisson {…}" carry what the format has no place for
// (docs/design/formats.md). Other players ignore comments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "verify/digest.h"

namespace caisson::session {

inline constexpr size_t kMaxTranscriptLine = size_t{768} << 10;
inline constexpr size_t kMaxEventBytes = size_t{64} << 10;  // longer output becomes several events
inline constexpr size_t kLinesPerCheck = 16;

struct TranscriptHeader {
  int rows = 24, columns = 80;
  int64_t timestamp = 0;  // seconds since the epoch; 0: none
  std::string title;      // empty: none
  std::string command;    // empty: none
};

struct TranscriptEvent {
  enum class Kind : uint8_t { kOutput, kInput, kResize, kCommandBegan, kCommandEnded, kOther };
  Kind kind = Kind::kOther;
  int64_t line = 0;              // counted from 1
  int64_t time_us = 0;           // since the beginning of the transcript
  uint32_t command = 0;          // 0: of no command
  std::string bytes;             // output and input: exactly as they were; a command's text; an exit code
  int rows = 0, columns = 0;     // of kResize
  std::optional<int> exit_code;  // of kCommandEnded; none: unknown
};

// What a comment line of ours says; every member is optional.
struct TranscriptNote {
  std::optional<uint32_t> command;  // that the events below belong to
  std::optional<std::string> raw;   // the exact bytes of the next event, which are not UTF-8
  // A check line: eight digits of the SHA-256 of each line since the last check line, and that of the whole file above.
  std::string line_hashes;
  std::string sha256;
};

// One line behind the header.
struct TranscriptLine {
  enum class Kind : uint8_t { kEvent, kNote, kComment };
  Kind kind = Kind::kComment;
  TranscriptEvent event;  // of kEvent; its time_us is the time since the event before
  TranscriptNote note;    // of kNote
};

// For lines without their ends, which may be hostile. Errors are ErrorKind::kInvalid and name the place.
Result<TranscriptHeader> ParseTranscriptHeader(std::string_view line);
Result<TranscriptLine> ParseTranscriptLine(std::string_view line);

// Lines with their ends. All are ASCII, so the file itself is harmless to a terminal.
std::string FormatTranscriptHeader(const TranscriptHeader& header);
// `command` is noted if it has a value. `data` may be any bytes.
std::string FormatTranscriptEvent(int64_t interval_us, char code, std::string_view data,
                                  std::optional<uint32_t> command);

// Identifies a transcript, or its first lines while it is written.
struct TranscriptDigest {
  int64_t lines = 0;
  int64_t bytes = 0;
  std::string sha256;  // of these bytes
};

// Counts and hashes the lines of a transcript, for its writer and for those who check it.
class TranscriptTally {
 public:
  // `line` is without its end.
  void Add(std::string_view line);
  // The same for a check line, which the next one does not list.
  void AddCheckLine(std::string_view line);

  int64_t lines() const { return lines_; }
  int64_t bytes() const { return bytes_; }
  TranscriptDigest digest() const;
  // Short hashes of the lines since the last check line.
  const std::vector<std::string>& unchecked() const { return unchecked_; }
  // The check line that is due after those, with its end.
  std::string CheckLine() const;

 private:
  void AddToTotal(std::string_view line);

  verify::Sha256Stream hash_;
  std::vector<std::string> unchecked_;
  int64_t lines_ = 0, bytes_ = 0;
};

// The number of bytes at the end of `text` that are the beginning of a UTF-8 character: 0 to 3.
size_t IncompleteTail(std::string_view text);

}  // namespace caisson::session
