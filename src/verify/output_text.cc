#include "verify/output_text.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"

namespace caisson::verify {
namespace {

// The text may exceed twice its bytes by this much, so that short outputs are never cut.
constexpr uint64_t kFreeBytes = uint64_t{64} << 10;
// The bytes shown at each end of a binary stream's text.
constexpr uint64_t kShownBytes = uint64_t{32} << 10;
constexpr size_t kStepBytes = size_t{12} << 10;  // a multiple of 3, for base64
constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Passes on valid UTF-8. Joins sequences that are split between two pieces.
class Repair {
 public:
  explicit Repair(const OutputText::Sink& sink) : sink_(sink) {}

  Status Feed(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view step = bytes.substr(0, kStepBytes);
      bytes.remove_prefix(step.size());
      pending_.append(step);
      CAISSON_TRY_VOID(Drain(false));
    }
    return {};
  }
  Status End() { return Drain(true); }

 private:
  Status Drain(bool last) {
    std::string text;
    std::string_view left = pending_;
    while (!left.empty()) {
      // Four bytes are enough to judge any sequence; fewer may be the beginning of one.
      if (!last && left.size() < 4 && static_cast<unsigned char>(left.front()) >= 0x80) break;
      const DecodedCodePoint next = DecodeUtf8(left);
      if (next.valid)
        text.append(left.substr(0, next.length));
      else
        text.append(kReplacement);
      left.remove_prefix(next.length);
    }
    pending_.erase(0, pending_.size() - left.size());
    return text.empty() ? Status() : sink_(text);
  }

  const OutputText::Sink& sink_;
  std::string pending_;
};

std::string_view ShortEscape(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return {};
  }
}

std::string Escaped(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 8);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const std::string_view word = ShortEscape(c); !word.empty()) {
      escaped += word;
    } else if (byte < 0x20) {
      escaped += "\\u00";
      escaped += kDigits[byte >> 4];
      escaped += kDigits[byte & 15];
    } else {
      escaped += c;
    }
  }
  return escaped;
}

template <typename Checks>
Status Repaired(const Checks& checks, const OutputText::Sink& sink) {
  for (const auto& pieces : checks) {
    Repair repair(sink);
    for (const std::string_view part : pieces) CAISSON_TRY_VOID(repair.Feed(part));
    CAISSON_TRY_VOID(repair.End());
  }
  return {};
}

}  // namespace

OutputText::OutputText(std::vector<const CapturedStream*> streams) {
  notes_.reserve(streams.size());  // checks_ refers to the elements, so they must not move
  for (const CapturedStream* stream : streams) {
    Pieces pieces = {stream->head};
    if (stream->dropped_bytes > 0) {
      notes_.push_back("\n[" + std::to_string(stream->dropped_bytes) + " bytes left out]\n");
      pieces.emplace_back(notes_.back());
    }
    pieces.emplace_back(stream->tail);
    for (const std::string_view part : pieces) bytes_ += part.size();
    checks_.push_back(std::move(pieces));
  }
  uint64_t length = 0;
  static_cast<void>(Repaired(checks_, [&](std::string_view text) -> Status {
    for (const char c : text) {
      const std::string_view word = ShortEscape(c);
      length += !word.empty() ? word.size() : static_cast<unsigned char>(c) < 0x20 ? 6 : 1;
    }
    return {};
  }));
  is_binary_ = length > 2 * bytes_ + kFreeBytes;
  if (!is_binary_) return;
  cut_note_ = "\n[binary output: " + std::to_string(bytes_ - std::min(bytes_, 2 * kShownBytes)) +
              " bytes are only in the base64 form]\n";
}

std::vector<OutputText::Pieces> OutputText::CutChecks() const {
  if (!is_binary_ || bytes_ <= 2 * kShownBytes) return checks_;
  Pieces shown;
  uint64_t at = 0;
  bool noted = false;
  for (const Pieces& pieces : checks_) {
    for (const std::string_view part : pieces) {
      const uint64_t end = at + part.size();
      if (at < kShownBytes) shown.push_back(part.substr(0, static_cast<size_t>(kShownBytes - at)));
      if (!noted && end > kShownBytes) {
        shown.emplace_back(cut_note_);
        noted = true;
      }
      const uint64_t tail = std::max(at, bytes_ - kShownBytes);
      if (end > tail) shown.push_back(part.substr(static_cast<size_t>(tail - at)));
      at = end;
    }
  }
  return {shown};
}

Status OutputText::WriteText(const Sink& sink) const { return Repaired(CutChecks(), sink); }

Status OutputText::WriteJsonText(const Sink& sink) const {
  return WriteText([&](std::string_view text) { return sink(Escaped(text)); });
}

Status OutputText::WriteBytes(const Sink& sink) const {
  for (const Pieces& pieces : checks_) {
    for (const std::string_view part : pieces) {
      if (!part.empty()) CAISSON_TRY_VOID(sink(part));
    }
  }
  return {};
}

Status OutputText::WriteBase64(const Sink& sink) const {
  std::array<unsigned char, kStepBytes / 3 * 4 + 1> encoded;
  std::string pending;
  const auto encode = [&](std::string_view bytes) -> Status {
    const int size = ::EVP_EncodeBlock(encoded.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                                       static_cast<int>(bytes.size()));
    return sink({reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(size)});
  };
  const Sink add = [&](std::string_view bytes) -> Status {
    while (!bytes.empty()) {
      const size_t taken = std::min(bytes.size(), kStepBytes - pending.size());
      pending.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if (pending.size() < kStepBytes) continue;
      CAISSON_TRY_VOID(encode(pending));
      pending.clear();
    }
    return {};
  };
  CAISSON_TRY_VOID(WriteBytes(add));
  return pending.empty() ? Status() : encode(pending);
}

}  // namespace caisson::verify
