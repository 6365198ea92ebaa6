#include "session/transcript_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "verify/json_fields.h"
#include "verify/json_reader.h"
#include "verify/request_syntax.h"

namespace caisson::session {
namespace {

using nlohmann::json;
using namespace verify;  // its readers: every second word below

constexpr std::string_view kNotePrefix = "#caisson ";
constexpr size_t kShortHash = 8;
constexpr int kMaxScreen = 65535;
constexpr double kMaxInterval = 1e8;  // seconds: three years between two events
constexpr size_t kMaxTitleBytes = 4096;

std::string AsciiJson(const json& value) { return value.dump(-1, ' ', true, json::error_handler_t::replace); }

Result<json> ReadLine(std::string_view line) {
  JsonBounds bounds;
  bounds.max_bytes = kMaxTranscriptLine;
  bounds.max_depth = 8;
  bounds.max_values = 1000;
  return ReadJson(line, bounds);
}

Result<std::string> ReadTitle(const json& value, const std::string& path) {
  CAISSON_TRY(std::string text, ReadString(value, path));
  if (text.size() > kMaxTitleBytes) return FieldError(path, "is longer than 4096 bytes");
  return text;
}

// "80x24": columns, then rows.
Status ReadSize(const std::string& text, TranscriptEvent& event) {
  const char* const end = text.data() + text.size();
  const auto [middle, first] = std::from_chars(text.data(), end, event.columns);
  if (first == std::errc() && middle != end && *middle == 'x') {
    const auto [last, second] = std::from_chars(middle + 1, end, event.rows);
    const bool fits = event.columns >= 1 && event.columns <= kMaxScreen && event.rows >= 1 && event.rows <= kMaxScreen;
    if (second == std::errc() && last == end && fits) return {};
  }
  return FieldError("[2]", "expected COLUMNSxROWS, found " + EscapeForTerminal(text.substr(0, 32)));
}

Status ReadExitCode(const std::string& text, TranscriptEvent& event) {
  if (text.empty()) return {};
  int code = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), code);
  if (failure != std::errc() || end != text.data() + text.size() || code < 0 || code > 255) {
    return FieldError("[2]", "expected an exit code, found " + EscapeForTerminal(text.substr(0, 32)));
  }
  event.exit_code = code;
  return {};
}

Result<TranscriptEvent> ReadEvent(const json& value) {
  CAISSON_TRY_VOID(ExpectArray(value, "", 3, 3));
  TranscriptEvent event;
  CAISSON_TRY(const double interval, ReadNumber(value[0], "[0]"));
  if (!(interval >= 0 && interval <= kMaxInterval)) return FieldError("[0]", "is not a time between two events");
  event.time_us = std::llround(interval * 1e6);
  CAISSON_TRY(const std::string code, ReadWord(value[1], "[1]", "", 8));
  CAISSON_TRY(event.bytes, ReadString(value[2], "[2]"));
  using Kind = TranscriptEvent::Kind;
  if (code == "o") event.kind = Kind::kOutput;
  if (code == "i") event.kind = Kind::kInput;
  if (code == "m") event.kind = Kind::kCommandBegan;
  if (code == "r") {
    event.kind = Kind::kResize;
    CAISSON_TRY_VOID(ReadSize(event.bytes, event));
  }
  if (code == "x") {
    event.kind = Kind::kCommandEnded;
    CAISSON_TRY_VOID(ReadExitCode(event.bytes, event));
  }
  return event;
}

Result<std::string> ReadRaw(const json& value, const std::string& path) {
  CAISSON_TRY(const std::string text, ReadString(value, path));
  std::optional<std::string> bytes = DecodeBase64(text);
  if (!bytes) return FieldError(path, "is not base64 (RFC 4648, padded, without blanks)");
  return *std::move(bytes);
}

Result<std::string> ReadLineHashes(const json& value, const std::string& path) {
  CAISSON_TRY(std::string text, ReadString(value, path));
  const bool is_hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hex || text.empty() || text.size() % kShortHash != 0) {
    return FieldError(path, "expected eight hexadecimal digits for each line");
  }
  return text;
}

Result<TranscriptNote> ReadNote(const json& value) {
  CAISSON_TRY_VOID(ExpectObject(value, "", {"command", "base64", "lines", "sha256"}));
  TranscriptNote note;
  if (const json* command = FindMember(value, "command")) {
    CAISSON_TRY(const int64_t number, ReadInteger(*command, "command", 0, UINT32_MAX));
    note.command = static_cast<uint32_t>(number);
  }
  if (const json* raw = FindMember(value, "base64")) {
    CAISSON_TRY(note.raw, ReadRaw(*raw, "base64"));
  }
  CAISSON_TRY_VOID(ReadOptional(value, "", "lines", note.line_hashes, ReadLineHashes));
  CAISSON_TRY_VOID(ReadOptional(value, "", "sha256", note.sha256, ReadSha256));
  if (note.line_hashes.empty() != note.sha256.empty()) {
    return FieldError("", "a check line has both lines and sha256");
  }
  return note;
}

}  // namespace

Result<TranscriptHeader> ParseTranscriptHeader(std::string_view line) {
  CAISSON_TRY(const json value, ReadLine(line));
  if (!value.is_object()) return WrongTypeError("", "an object", value);
  CAISSON_TRY_VOID(ReadRequired(value, "", "version", ReadInteger, 3, 3));
  CAISSON_TRY(const json* term, RequireMember(value, "", "term"));
  if (!term->is_object()) return WrongTypeError("term", "an object", *term);
  TranscriptHeader header;
  CAISSON_TRY(const int64_t columns, ReadRequired(*term, "term", "cols", ReadInteger, 1, kMaxScreen));
  CAISSON_TRY(const int64_t rows, ReadRequired(*term, "term", "rows", ReadInteger, 1, kMaxScreen));
  header.columns = static_cast<int>(columns);
  header.rows = static_cast<int>(rows);
  constexpr int64_t kMaxTimestamp = int64_t{1} << 40;
  CAISSON_TRY_VOID(ReadOptional(value, "", "timestamp", header.timestamp, ReadInteger, 0, kMaxTimestamp));
  CAISSON_TRY_VOID(ReadOptional(value, "", "title", header.title, ReadTitle));
  CAISSON_TRY_VOID(ReadOptional(value, "", "command", header.command, ReadTitle));
  return header;
}

Result<TranscriptLine> ParseTranscriptLine(std::string_view line) {
  TranscriptLine parsed;
  if (line.substr(0, kNotePrefix.size()) == kNotePrefix) {
    CAISSON_TRY(const json value, ReadLine(line.substr(kNotePrefix.size())));
    CAISSON_TRY(parsed.note, ReadNote(value));
    parsed.kind = TranscriptLine::Kind::kNote;
    return parsed;
  }
  if (line.substr(0, 1) == "#") return parsed;
  CAISSON_TRY(const json value, ReadLine(line));
  CAISSON_TRY(parsed.event, ReadEvent(value));
  parsed.kind = TranscriptLine::Kind::kEvent;
  return parsed;
}

std::string FormatTranscriptHeader(const TranscriptHeader& header) {
  json value = {{"version", 3}, {"term", {{"cols", header.columns}, {"rows", header.rows}}}};
  if (header.timestamp != 0) value["timestamp"] = header.timestamp;
  const auto put = [&](const char* name, const std::string& text) {
    // Half of the bound: U+FFFD takes more bytes than the one it stands for.
    std::string shown = ReplaceInvalidUtf8(text.substr(0, kMaxTitleBytes / 4));
    if (!shown.empty()) value[name] = std::move(shown);
  };
  put("title", header.title);
  put("command", header.command);
  return AsciiJson(value) + "\n";
}

std::string FormatTranscriptEvent(int64_t interval_us, char code, std::string_view data,
                                  std::optional<uint32_t> command) {
  json note = json::object();
  if (command) note["command"] = *command;
  const bool is_text = IsValidUtf8(data);
  if (!is_text) note["base64"] = EncodeBase64(data);
  std::string lines;
  if (!note.empty()) lines.append(kNotePrefix).append(AsciiJson(note)).append("\n");
  std::string fraction = std::to_string(interval_us % 1'000'000);
  fraction.insert(0, 6 - fraction.size(), '0');
  lines.append("[").append(std::to_string(interval_us / 1'000'000)).append(".").append(fraction);
  lines.append(",\"").append(1, code).append("\",");
  return lines.append(AsciiJson(is_text ? std::string(data) : ReplaceInvalidUtf8(data))).append("]\n");
}

void TranscriptTally::AddToTotal(std::string_view line) {
  hash_.Add(line);
  hash_.Add("\n");
  ++lines_;
  bytes_ += static_cast<int64_t>(line.size()) + 1;
}

void TranscriptTally::Add(std::string_view line) {
  AddToTotal(line);
  unchecked_.push_back(Sha256Hex(line).substr(0, kShortHash));
}

void TranscriptTally::AddCheckLine(std::string_view line) {
  AddToTotal(line);
  unchecked_.clear();
}

TranscriptDigest TranscriptTally::digest() const {
  Sha256Stream until_now = hash_;
  return {lines_, bytes_, until_now.FinishHex()};
}

std::string TranscriptTally::CheckLine() const {
  std::string hashes;
  for (const std::string& hash : unchecked_) hashes += hash;
  const json note = {{"lines", hashes}, {"sha256", digest().sha256}};
  return std::string(kNotePrefix) + AsciiJson(note) + "\n";
}

size_t IncompleteTail(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size) {
    const std::string_view tail = text.substr(text.size() - size);
    const auto first = static_cast<unsigned char>(tail[0]);
    if ((first & 0xC0) == 0x80) continue;
    if (first < 0xC2 || first > 0xF4) return 0;
    const DecodedCodePoint decoded = DecodeUtf8(tail);
    return !decoded.valid && decoded.length == size ? size : 0;
  }
  return 0;
}

}  // namespace caisson::session
