// A transcript may be hostile. Lines that are accepted give bounded events, and every byte that a command wrote comes
// back from the line it is recorded in.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "fault.h"
#include "session/transcript_format.h"
#include "target.h"

CAISSON_FUZZ_TARGET(transcript) {
  using namespace caisson::session;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  if (const auto header = ParseTranscriptHeader(text.substr(0, text.find('\n'))); header) {
    CAISSON_CHECK(header->rows >= 1 && header->columns >= 1);
    CAISSON_CHECK(ParseTranscriptHeader(FormatTranscriptHeader(*header)).has_value());
  } else {
    CheckFault(header.error());
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = ParseTranscriptLine(text.substr(begin, end - begin));
    if (!line) {
      CheckFault(line.error());
    } else {
      CAISSON_CHECK(line->event.time_us >= 0 && line->note.line_hashes.size() % 8 == 0);
      CAISSON_CHECK(line->event.exit_code.value_or(0) <= 255);
    }
    begin = end + 1;
  }
  // The bytes as a command's output.
  const std::string_view output = text.substr(0, kMaxEventBytes);
  CAISSON_CHECK(IncompleteTail(output) <= 3);
  std::string lines = FormatTranscriptEvent(1'234'567, 'o', output, 3);
  CAISSON_CHECK(lines.size() <= 2 * kMaxTranscriptLine);
  const size_t note_end = lines.find('\n');
  const auto note = ParseTranscriptLine(std::string_view(lines).substr(0, note_end));
  CAISSON_CHECK(note && note->note.command == 3u);
  const auto event = ParseTranscriptLine(std::string_view(lines).substr(note_end + 1, lines.size() - note_end - 2));
  CAISSON_CHECK(event && event->event.kind == TranscriptEvent::Kind::kOutput && event->event.time_us == 1'234'567);
  CAISSON_CHECK(note->note.raw.value_or(event->event.bytes) == output);
  CAISSON_CHECK(event->event.bytes == caisson::ReplaceInvalidUtf8(output));
  return 0;
}
