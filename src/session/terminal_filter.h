// Makes the output of a hostile program harmless for the terminal it is shown on. A terminal obeys escape sequences:
// some write to the clipboard, change the title or fonts, or make the terminal type an answer into the shell that runs
// on it. The filter passes what is listed in terminal_filter.cc and removes everything else.
//
//   TerminalFilter filter(FilterStrength::kAttach);
//   Write(filter.Filter(bytes));   // bytes in pieces of any size
//   Write(filter.Finish());        // leaves the terminal as it was before
//
// Text always passes in the end: a sequence that does not end is given up after a bounded number of bytes, and what
// follows is text again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace caisson::session {

enum class FilterStrength {
  kReplay,  // text, colours, moving the cursor, erasing: for a recording that is only looked at
  kAttach,  // also what full-screen programs need: alternate screen, mouse, bracketed paste, keypad, cursor shape
};

// What becomes of a removed sequence.
enum class RemovedSequences {
  kDropped,
  kShown,  // in visible characters, shortened: for people who look for attacks
};

class TerminalFilter {
 public:
  static constexpr size_t kMaxSequenceBytes = 256;
  static constexpr size_t kMaxStringBytes = size_t{64} << 10;  // of an OSC, DCS, APC, PM, SOS or title

  explicit TerminalFilter(FilterStrength strength, RemovedSequences removed = RemovedSequences::kDropped)
      : strength_(strength), shows_removed_(removed == RemovedSequences::kShown) {}

  // What may be written to the terminal for the next bytes of output: valid UTF-8 without C1 controls. A sequence or
  // character that continues in the next piece is held back.
  std::string Filter(std::string_view bytes);

  // Ends the output: gives what was held back, and undoes every mode, colour and margin that is still set. The filter
  // then begins anew.
  std::string Finish();

  // Sequences that were removed.
  int64_t removed() const { return removed_count_; }

 private:
  enum class State : uint8_t { kText, kEscape, kCsi, kString, kStringEscape };

  // `character` is 0xFFFD for bytes that are not UTF-8.
  void Take(char32_t character, std::string_view bytes, std::string& out);
  void TakeText(char32_t character, std::string_view bytes, std::string& out);
  void TakeEscape(char32_t character, std::string_view bytes, std::string& out);
  void TakeCsi(char32_t character, std::string_view bytes, std::string& out);
  void TakeString(char32_t character, std::string_view bytes, std::string& out);
  void EndEscape(char final, std::string& out);
  void EndCsi(char final, std::string& out);
  bool PassesPlainCsi(char final, std::string_view parameters);
  void EndModes(std::string_view parameters, bool set, std::string& out);
  // Gives up the sequence; the next character is text.
  void Remove(std::string& out);
  void BeginEscape();

  FilterStrength strength_;
  bool shows_removed_;
  State state_ = State::kText;
  char introducer_ = 0;      // of a string: ] for OSC, P for DCS, …
  std::string sequence_;     // its bytes after ESC, as far as they are needed
  size_t string_bytes_ = 0;  // of a string, with those that are not kept
  std::string character_;    // the beginning of a UTF-8 character
  int64_t removed_count_ = 0;
  std::set<int> changed_modes_;  // private modes that are not as they were before
  bool coloured_ = false, margins_ = false, cursor_shape_ = false, keypad_ = false, charset_ = false, insert_ = false;
};

}  // namespace caisson::session
