#include "service/http/request_head.h"

#include <algorithm>
#include <array>

#include "policy/syntax.h"

namespace caisson::service::http {

namespace {

constexpr size_t kMaxLineBytes = 8192;
constexpr size_t kMaxFields = 100;
constexpr size_t kMaxMethodBytes = 16;
constexpr size_t kMaxLengthDigits = 15;  // far above every bound, far below what overflows

constexpr std::array<std::string_view, 16> kSingleFields = {
    "accept",         "authorization",  "content-encoding", "content-length",    "content-type",
    "expect",         "host",           "idempotency-key",  "last-event-id",     "origin",
    "sec-fetch-site", "sec-fetch-mode", "content-range",    "transfer-encoding", "te",
    "trailer"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// RFC 9110, 5.6.2.
bool IsTokenCharacter(char c) {
  return IsDigit(c) || IsLetter(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// RFC 3986: the characters of a path and a query, except escapes.
bool IsTargetCharacter(char c) {
  return IsDigit(c) || IsLetter(c) || std::string_view("-._~!$&'()*+,;=:@/?").find(c) != std::string_view::npos;
}

bool IsPath(std::string_view target) {
  if (target.empty() || target.front() != '/') return false;
  for (size_t i = 0; i < target.size(); ++i) {
    if (IsTargetCharacter(target[i])) continue;
    if (target[i] != '%' || i + 2 >= target.size() || !IsHex(target[i + 1]) || !IsHex(target[i + 2])) return false;
    i += 2;
  }
  return true;
}

bool IsVersion(std::string_view word) {
  return word.size() == 8 && word.substr(0, 5) == "HTTP/" && IsDigit(word[5]) && word[6] == '.' && IsDigit(word[7]);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool IsControl(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

}  // namespace

bool IsSingleField(std::string_view lower_case_name) {
  return std::find(kSingleFields.begin(), kSingleFields.end(), lower_case_name) != kSingleFields.end();
}

HeadCheck::State HeadCheck::Refuse(int status, const char* reason) {
  fault_ = {status, reason};
  return State::kRefused;
}

HeadCheck::State HeadCheck::Look(std::string_view bytes) {
  while (checked_ < bytes.size()) {
    // Never scan a byte twice: a line may arrive one byte at a time.
    const size_t end = bytes.find_first_of(std::string_view("\r\n\0", 3), std::max(checked_, scanned_));
    scanned_ = std::min(end, bytes.size());
    const size_t length = scanned_ - checked_;
    if (lines_ == 0 && length > kMaxLineBytes) return Refuse(414, "the first line is longer than 8 KiB");
    if (checked_ + length + 2 > max_bytes_) return Refuse(431, "the head is too large");
    if (end == std::string_view::npos) return State::kMore;
    if (bytes[end] != '\r') return Refuse(400, bytes[end] == '\n' ? "a line ends in LF without CR" : "a NUL byte");
    if (end + 1 == bytes.size()) return State::kMore;
    if (bytes[end + 1] != '\n') return Refuse(400, "CR without LF");
    const std::string_view line = bytes.substr(checked_, length);
    checked_ = end + 2;
    if (const State state = LookAtLine(line); state != State::kMore) return state;
  }
  return State::kMore;
}

HeadCheck::State HeadCheck::LookAtLine(std::string_view line) {
  if (std::any_of(line.begin(), line.end(), IsControl)) return Refuse(400, "a control character");
  if (lines_++ == 0) return LookAtRequestLine(line);
  if (line.empty()) return LookAtWhole();
  if (lines_ > kMaxFields + 1) return Refuse(431, "more than 100 fields");
  return LookAtField(line);
}

HeadCheck::State HeadCheck::LookAtRequestLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = line.find(' ', first == std::string_view::npos ? first : first + 1);
  if (second == std::string_view::npos) return Refuse(400, "the first line is not METHOD PATH HTTP/1.1");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!IsVersion(version)) return Refuse(400, "the first line is not METHOD PATH HTTP/1.1");
  if (version != "HTTP/1.1") return Refuse(505, "only HTTP/1.1 is supported");
  if (method.empty() || method.size() > kMaxMethodBytes ||
      !std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
    return Refuse(400, "the method is not a word in capitals");
  if (!IsPath(target)) return Refuse(400, "the target is not an absolute path with well-formed escapes");
  return State::kMore;
}

HeadCheck::State HeadCheck::LookAtField(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') return Refuse(400, "a field is folded over two lines");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return Refuse(400, "a field without a name");
  const std::string_view name = line.substr(0, colon);
  if (!std::all_of(name.begin(), name.end(), IsTokenCharacter))
    return Refuse(400, "a field's name has invalid characters");
  const std::string lower = policy::ToLowerAscii(std::string(name));
  if (IsSingleField(lower)) {
    if (std::find(single_.begin(), single_.end(), lower) != single_.end())
      return Refuse(400, "a single-value field appears twice");
    single_.push_back(lower);
  }
  return LookAtValue(lower, Trimmed(line.substr(colon + 1)));
}

HeadCheck::State HeadCheck::LookAtValue(std::string_view name, std::string_view value) {
  if (name == "content-length" &&
      (value.empty() || value.size() > kMaxLengthDigits || !std::all_of(value.begin(), value.end(), IsDigit)))
    return Refuse(400, "Content-Length is not a plain number");
  if (name == "host" && value.empty()) return Refuse(400, "Host is empty");
  if (name == "expect" && policy::ToLowerAscii(std::string(value)) != "100-continue")
    return Refuse(417, "Expect can only be 100-continue");
  return State::kMore;
}

HeadCheck::State HeadCheck::LookAtWhole() {
  const auto came = [&](std::string_view name) {
    return std::find(single_.begin(), single_.end(), name) != single_.end();
  };
  if (!came("host")) return Refuse(400, "Host is missing");
  if (came("transfer-encoding")) {
    if (came("content-length")) return Refuse(400, "both Content-Length and Transfer-Encoding");
    return Refuse(411, "a body needs a Content-Length; Transfer-Encoding is not supported");
  }
  return State::kWhole;
}

}  // namespace caisson::service::http
