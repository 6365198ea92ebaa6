#include "session/terminal_filter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutation.h"
#include "base/utf8.h"

namespace caisson::session {
namespace {

constexpr char kEsc = '\x1b';
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr size_t kShownBytes = 64;
constexpr int kMaxParameter = 9999;

// Private modes (CSI ? n h and CSI ? n l) that pass. All are undone by Finish.
struct Mode {
  int number;
  bool initially_set;
  bool in_replay;
};
constexpr std::array kModes = {
    Mode{1, false, false},     // cursor keys send application sequences
    Mode{5, false, false},     // reverse video
    Mode{6, false, false},     // origin within the margins
    Mode{7, true, true},       // automatic wrapping
    Mode{12, false, false},    // blinking cursor
    Mode{25, true, true},      // visible cursor
    Mode{47, false, false},    // alternate screen, in three forms
    Mode{66, false, false},    // application keypad
    Mode{1000, false, false},  // mouse: buttons
    Mode{1002, false, false},  // mouse: dragging
    Mode{1003, false, false},  // mouse: all movement
    Mode{1004, false, false},  // focus
    Mode{1006, false, false},  // mouse: encoding
    Mode{1007, false, false},  // wheel sends cursor keys on the alternate screen
    Mode{1015, false, false},  // mouse: older encoding
    Mode{1047, false, false},  // alternate screen
    Mode{1049, false, false},  // alternate screen, with the cursor
    Mode{2004, false, false},  // bracketed paste
    Mode{2026, false, true},   // synchronised output
};

const Mode* FindMode(int number) {
  const auto* found =
      std::find_if(kModes.begin(), kModes.end(), [&](const Mode& mode) { return mode.number == number; });
  return found == kModes.end() ? nullptr : found;
}

// "1;31" as numbers; an empty parameter is -1. Nothing if one is no number, or larger than a screen needs.
std::optional<std::vector<int>> ReadParameters(std::string_view text) {
  std::vector<int> numbers;
  if (text.empty()) return numbers;
  for (;;) {
    const std::string_view item = text.substr(0, text.find(';'));
    int number = -1;
    if (!item.empty()) {
      const auto [end, failure] = std::from_chars(item.data(), item.data() + item.size(), number);
      if (failure != std::errc() || end != item.data() + item.size() || number < 0 || number > kMaxParameter) return {};
    }
    numbers.push_back(number);
    if (item.size() == text.size()) return numbers;
    text.remove_prefix(item.size() + 1);
  }
}

// Colours and attributes. 10 to 20 choose fonts, and on the Linux console a mapping that shows control characters.
bool PassesColours(std::string_view text) {
  if (text.find_first_not_of("0123456789;:") != std::string_view::npos) return false;
  int belongs_to_colour = 0;  // parameters that are part of 38;5;n or 38;2;r;g;b
  bool names_form = false;
  for (bool more = true; more;) {
    const std::string_view item = text.substr(0, text.find(';'));
    more = item.size() != text.size();
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::string_view first = item.substr(0, item.find(':'));
    int number = 0;
    if (!first.empty() && std::from_chars(first.data(), first.data() + first.size(), number).ec != std::errc()) {
      return false;
    }
    if (names_form) {
      belongs_to_colour = number == 5 ? 1 : number == 2 ? 3 : 0;
      names_form = false;
    } else if (belongs_to_colour > 0) {
      --belongs_to_colour;
    } else if (number >= 10 && number <= 20) {
      return false;
    } else if (number == 38 || number == 48 || number == 58) {
      names_form = first.size() == item.size();
    }
  }
  return true;
}

// DCS strings carry images, whose data has line breaks; in all others one is a sign that the end was left out.
bool LineBreakEnds(char introducer) { return introducer != 'P'; }

}  // namespace

std::string TerminalFilter::Filter(std::string_view bytes) {
  if (CAISSON_LEFT_OUT("inert_output")) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size());
  for (const char byte : bytes) {
    character_ += byte;
    for (;;) {
      const DecodedCodePoint decoded = DecodeUtf8(character_);
      // Ill-formed up to its end, and it begins like a character: the other bytes may follow.
      const auto lead = static_cast<unsigned char>(character_[0]);
      const bool incomplete = !decoded.valid && decoded.length == character_.size() && lead >= 0xC2 && lead <= 0xF4 &&
                              character_.size() < 4;
      if (incomplete) break;
      const std::string taken = character_.substr(0, decoded.length);
      character_.erase(0, decoded.length);
      Take(decoded.valid ? decoded.code_point : char32_t{0xFFFD}, taken, out);
      if (character_.empty()) break;
    }
  }
  return out;
}

void TerminalFilter::Take(char32_t character, std::string_view bytes, std::string& out) {
  switch (state_) {
    case State::kText:
      return TakeText(character, bytes, out);
    case State::kEscape:
      return TakeEscape(character, bytes, out);
    case State::kCsi:
      return TakeCsi(character, bytes, out);
    case State::kString:
    case State::kStringEscape:
      return TakeString(character, bytes, out);
  }
}

void TerminalFilter::TakeText(char32_t character, std::string_view bytes, std::string& out) {
  if (character == kEsc) return BeginEscape();
  if (character >= 0x80 && character <= 0x9F) {
    // A C1 control is another spelling of ESC and a letter, and some terminals obey it in UTF-8 too.
    BeginEscape();
    const char letter = static_cast<char>(character - 0x40);
    return TakeEscape(static_cast<char32_t>(letter), std::string_view(&letter, 1), out);
  }
  if (character == 0xFFFD) {
    out += kReplacement;
    return;
  }
  if (character < 0x20 || character == 0x7F) {
    // Of the controls, 5 (ENQ) makes a terminal answer, 14 and 15 switch character sets, 17 and 19 stop the output.
    constexpr std::string_view kPassed = "\b\t\n\v\f\r";
    const bool switches = character == 0x0E || character == 0x0F;
    const bool rings = character == '\a' && strength_ == FilterStrength::kAttach;
    if (switches) charset_ = true;
    if (switches || rings || kPassed.find(static_cast<char>(character)) != std::string_view::npos) out += bytes;
    return;
  }
  out += bytes;
}

void TerminalFilter::BeginEscape() {
  state_ = State::kEscape;
  sequence_.clear();
  introducer_ = 0;
  string_bytes_ = 0;
}

void TerminalFilter::Remove(std::string& out) {
  ++removed_count_;
  if (shows_removed_) {
    const bool is_long = sequence_.size() > kShownBytes || string_bytes_ > kShownBytes;
    out += EscapeForTerminal("\x1b" + sequence_.substr(0, kShownBytes));
    if (is_long) out += "…";
  }
  state_ = State::kText;
  sequence_.clear();
}

void TerminalFilter::TakeEscape(char32_t character, std::string_view bytes, std::string& out) {
  const bool is_final = character >= 0x30 && character <= 0x7E;
  const bool is_intermediate = character >= 0x20 && character <= 0x2F;
  if (!is_final && (!is_intermediate || sequence_.size() >= kMaxSequenceBytes)) {
    Remove(out);
    return TakeText(character, bytes, out);
  }
  const bool is_first = sequence_.empty();
  sequence_ += bytes;
  if (is_intermediate) return;
  const char final = static_cast<char>(character);
  if (is_first && final == '[') {
    state_ = State::kCsi;
  } else if (is_first && std::string_view("P]^_Xk").find(final) != std::string_view::npos) {
    // The last is how screen and tmux spell a title.
    state_ = State::kString;
    introducer_ = final;
  } else {
    EndEscape(final, out);
  }
}

void TerminalFilter::EndEscape(char final, std::string& out) {
  bool passes = false;
  if (sequence_.size() == 1) {
    passes = std::string_view("78DEM").find(final) != std::string_view::npos;
    if ((final == '=' || final == '>') && strength_ == FilterStrength::kAttach) passes = keypad_ = true;
  } else if (sequence_ == "(0" || sequence_ == "(B" || sequence_ == ")0" || sequence_ == ")B") {
    passes = charset_ = true;  // the characters that boxes are drawn with
  }
  if (!passes) return Remove(out);
  out += kEsc;
  out += sequence_;
  state_ = State::kText;
}

void TerminalFilter::TakeCsi(char32_t character, std::string_view bytes, std::string& out) {
  const bool is_final = character >= 0x40 && character <= 0x7E;
  const bool is_part = character >= 0x20 && character <= 0x3F;
  if (!is_final && (!is_part || sequence_.size() >= kMaxSequenceBytes)) {
    Remove(out);
    return TakeText(character, bytes, out);
  }
  sequence_ += bytes;
  if (is_final) EndCsi(static_cast<char>(character), out);
}

// `parameters` are without a private prefix and without intermediate bytes.
bool TerminalFilter::PassesPlainCsi(char final, std::string_view parameters) {
  if (final == 'm') {
    const bool passes = PassesColours(parameters);
    coloured_ = coloured_ || passes;
    return passes;
  }
  const std::optional<std::vector<int>> numbers = ReadParameters(parameters);
  if (!numbers) return false;
  const int first = numbers->empty() ? -1 : numbers->front();
  switch (final) {
    case 'H':  // the cursor, with row and column
    case 'f':
      return numbers->size() <= 2;
    case 'r':  // scrolling margins
      margins_ = margins_ || numbers->size() <= 2;
      return numbers->size() <= 2;
    case 'J':  // erases; 3 would erase what was on the terminal before the session
      return numbers->size() <= 1 && first <= 2;
    case 's':  // with parameters, left and right margins
    case 'u':
      return numbers->empty();
    case 'h':
    case 'l':  // inserting instead of overwriting; the others lock the keyboard or change what Enter sends
      if (strength_ != FilterStrength::kAttach || numbers->size() != 1 || first != 4) return false;
      insert_ = final == 'h';
      return true;
    default:
      // Moving the cursor, tabulators, erasing, inserting and deleting, scrolling, repeating a character.
      return std::string_view("ABCDEFG`ade@IKLMPSTXZb").find(final) != std::string_view::npos && numbers->size() <= 1;
  }
}

void TerminalFilter::EndCsi(char final, std::string& out) {
  const std::string_view body = std::string_view(sequence_).substr(1, sequence_.size() - 2);
  const size_t intermediates = std::min(body.find_first_of(" !\"#$%&'()*+,-./"), body.size());
  const bool is_private = !body.empty() && body[0] >= '<' && body[0] <= '?';
  bool passes = false;
  if (is_private && body[0] == '?' && intermediates == body.size() && (final == 'h' || final == 'l')) {
    return EndModes(body.substr(1), final == 'h', out);
  }
  if (!is_private && intermediates == body.size()) passes = PassesPlainCsi(final, body);
  const bool is_shape = final == 'q' && (body == " " || (body.size() == 2 && body[0] <= '6' && body[1] == ' '));
  if (!is_private && is_shape && strength_ == FilterStrength::kAttach) passes = cursor_shape_ = true;
  if (!passes) return Remove(out);
  out += kEsc;
  out += sequence_;
  state_ = State::kText;
}

// Several modes may be named at once; those that may not be changed are left out.
void TerminalFilter::EndModes(std::string_view parameters, bool set, std::string& out) {
  std::string passed;
  bool leaves_out = false;
  for (const int number : ReadParameters(parameters).value_or(std::vector<int>{-1})) {
    const Mode* mode = FindMode(number);
    if (mode == nullptr || (strength_ == FilterStrength::kReplay && !mode->in_replay)) {
      leaves_out = true;
      continue;
    }
    if (set == mode->initially_set)
      changed_modes_.erase(number);
    else
      changed_modes_.insert(number);
    passed += (passed.empty() ? "" : ";") + std::to_string(number);
  }
  if (!passed.empty()) out += "\x1b[?" + passed + (set ? "h" : "l");
  if (leaves_out || passed.empty()) return Remove(out);
  state_ = State::kText;
}

void TerminalFilter::TakeString(char32_t character, std::string_view bytes, std::string& out) {
  if (state_ == State::kStringEscape) {
    Remove(out);
    if (character == '\\') return;
    // As in a terminal, ESC ends the string and begins another sequence.
    BeginEscape();
    return TakeEscape(character, bytes, out);
  }
  if (character == kEsc) {
    state_ = State::kStringEscape;
    return;
  }
  const bool is_bell = character == '\a' && introducer_ != 'P';
  const bool is_cancel = character == 0x18 || character == 0x1A;
  if (is_bell || is_cancel || character == 0x9C || bytes == "\x9C") return Remove(out);
  const bool is_break = (character == '\n' || character == '\r') && LineBreakEnds(introducer_);
  if (is_break || string_bytes_ >= kMaxStringBytes) {
    Remove(out);
    return TakeText(character, bytes, out);
  }
  string_bytes_ += bytes.size();
  if (sequence_.size() <= kShownBytes) sequence_ += bytes;
}

std::string TerminalFilter::Finish() {
  std::string out;
  if (!character_.empty()) {
    const std::string rest = std::exchange(character_, "");
    Take(0xFFFD, rest, out);
  }
  if (state_ != State::kText) Remove(out);
  // Margins and origin first: undoing them moves the cursor.
  const bool moves = margins_ || changed_modes_.count(6) != 0;
  if (moves)
    out +=
        "\x1b"
        "7";
  if (changed_modes_.erase(6) != 0) out += "\x1b[?6l";
  if (margins_) out += "\x1b[r";
  if (moves)
    out +=
        "\x1b"
        "8";
  for (const int number : changed_modes_) {
    out += "\x1b[?" + std::to_string(number) + (FindMode(number)->initially_set ? "h" : "l");
  }
  if (insert_) out += "\x1b[4l";
  if (keypad_) out += "\x1b>";
  if (cursor_shape_) out += "\x1b[0 q";
  if (charset_) out += "\x0f\x1b(B\x1b)B";
  if (coloured_) out += "\x1b[0m";
  const int64_t removed = removed_count_;
  *this = TerminalFilter(strength_, shows_removed_ ? RemovedSequences::kShown : RemovedSequences::kDropped);
  removed_count_ = removed;
  return out;
}

}  // namespace caisson::session
