// Whatever a program writes, what reaches the terminal contains only sequences that are harmless, and the same ones
// however the output was cut into pieces.
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "session/terminal_filter.h"
#include "target.h"

namespace {

using caisson::session::FilterStrength;
using caisson::session::RemovedSequences;
using caisson::session::TerminalFilter;

// A reader of its own, simpler than the filter: after ESC only these may come.
void CheckHarmless(std::string_view text) {
  CAISSON_CHECK(caisson::IsValidUtf8(text));
  while (!text.empty()) {
    const caisson::DecodedCodePoint next = caisson::DecodeUtf8(text);
    CAISSON_CHECK(next.code_point < 0x80 || next.code_point > 0x9F);
    text.remove_prefix(next.length);
    if (next.code_point != 0x1B) {
      const bool is_control = next.code_point < 0x20 || next.code_point == 0x7F;
      CAISSON_CHECK(!is_control || (next.code_point >= 7 && next.code_point <= 15));
      continue;
    }
    CAISSON_CHECK(!text.empty());
    const char kind = text[0];
    text.remove_prefix(1);
    if (kind == '(' || kind == ')') {
      CAISSON_CHECK(!text.empty() && (text[0] == '0' || text[0] == 'B'));
      text.remove_prefix(1);
      continue;
    }
    if (kind != '[') {
      CAISSON_CHECK(std::string_view("78DEM=>").find(kind) != std::string_view::npos);
      continue;
    }
    const size_t end = text.find_first_not_of("0123456789;:? ");
    CAISSON_CHECK(end != std::string_view::npos && end <= TerminalFilter::kMaxSequenceBytes);
    CAISSON_CHECK(std::string_view("ABCDEFGHIJKLMPSTXZ`abdefhlmqrsu@").find(text[end]) != std::string_view::npos);
    const bool is_private = text.substr(0, end).find('?') != std::string_view::npos;
    CAISSON_CHECK(!is_private || text[end] == 'h' || text[end] == 'l');
    CAISSON_CHECK(text[end] != 'J' || text.substr(0, end).find('3') == std::string_view::npos);
    text.remove_prefix(end + 1);
  }
}

}  // namespace

CAISSON_FUZZ_TARGET(terminal_filter) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  for (const FilterStrength strength : {FilterStrength::kReplay, FilterStrength::kAttach}) {
    for (const RemovedSequences removed : {RemovedSequences::kDropped, RemovedSequences::kShown}) {
      TerminalFilter whole(strength, removed), pieces(strength, removed);
      std::string out = whole.Filter(text);
      out += whole.Finish();
      CheckHarmless(out);
      std::string joined;
      for (size_t at = 0, step = 1; at < text.size(); at += step, step = step % 5 + 1) {
        joined += pieces.Filter(text.substr(at, step));
      }
      joined += pieces.Finish();
      CAISSON_CHECK(joined == out && pieces.removed() == whole.removed());
      CAISSON_CHECK(whole.Finish().empty());
    }
  }
  return 0;
}
