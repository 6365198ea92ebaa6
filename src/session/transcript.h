// The transcript of a session: what its commands wrote to their terminals, and when. The file is an asciicast v3, which
// asciinema and other players show; docs/design/formats.md describes what Caisson adds in comment lines.
//
//   CAISSON_TRY(TranscriptWriter transcript, TranscriptWriter::Open(directory_fd, "transcript.cast", header, {}));
//   transcript.CommandBegan(1, "make test", now);
//   transcript.Output(1, bytes, now);
//   transcript.CommandEnded(1, 0, now);
//   CAISSON_TRY(TranscriptDigest digest, transcript.Finish());
//
// The bytes are the workload's, unfiltered: showing them on a terminal needs a TerminalFilter. Bytes that are not UTF-8
// are kept: the event shows U+FFFD in their place, and a comment line in front of it has the exact bytes.
//
// Thread: one writer, used by one thread. Readers (transcript_reader.h) may read while it writes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "session/transcript_format.h"

namespace caisson::session {

inline constexpr int64_t kMaxTranscriptBytes = int64_t{256} << 20;

struct TranscriptOptions {
  int64_t max_bytes = kMaxTranscriptBytes;  // of the file
  bool record_input = false;                // false: Input() does nothing; people type passwords
};

class TranscriptWriter {
 public:
  using Options = TranscriptOptions;
  // Creates `name` in the directory, or goes on with an existing transcript, whose torn last line is removed.
  static Result<TranscriptWriter> Open(int directory_fd, const std::string& name, const TranscriptHeader& header,
                                       const TranscriptOptions& options);

  // Each whole event is in the file when the call returns: if this process dies, the file ends with a whole line. An
  // error (a full disk) ends the recording: later calls return it too, and so does Finish. Whether the session goes on
  // is the caller's decision. `now_ns` is of the monotonic clock.
  Status Output(uint32_t command, std::string_view bytes, int64_t now_ns);
  Status Input(uint32_t command, std::string_view bytes, int64_t now_ns);
  Status Resize(uint32_t command, int rows, int columns, int64_t now_ns);
  Status CommandBegan(uint32_t command, std::string_view text, int64_t now_ns);
  Status CommandEnded(uint32_t command, std::optional<int> exit_code, int64_t now_ns);

  // Of what was written until now: for the event that ends a command.
  TranscriptDigest digest() const { return tally_.digest(); }
  // Bytes of output and input that came after the cap was reached. The transcript says in its last event that it ends
  // early.
  int64_t dropped_bytes() const { return dropped_bytes_; }

  // Writes what was held back and synchronises the file. Nothing can be written afterwards.
  Result<TranscriptDigest> Finish();

 private:
  TranscriptWriter() = default;
  Status GoOn(int64_t size);
  Status Record(uint32_t command, char code, std::string_view data, int64_t now_ns);
  Status Stream(uint32_t command, char code, std::string_view bytes, int64_t now_ns);
  Status FlushHeldBack(uint32_t command, int64_t now_ns);
  Status WriteLines(const std::string& lines);

  UniqueFd fd_;
  std::string name_;
  TranscriptOptions options_;
  std::optional<Error> failure_;
  TranscriptTally tally_;
  int64_t dropped_bytes_ = 0;
  std::optional<int64_t> last_ns_;  // of the last event
  bool full_ = false;
  uint32_t noted_command_ = 0;
  // The beginning of a character whose other bytes have not come yet; at most three bytes for each stream.
  std::map<std::pair<uint32_t, char>, std::string> held_back_;
};

}  // namespace caisson::session
