#include "client/reply_reader.h"

#include <algorithm>
#include <charconv>

#include "policy/syntax.h"

namespace caisson::client {

namespace {

constexpr size_t kMaxHeadBytes = 32 << 10;
constexpr size_t kMaxChunkLine = 16;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 31;

Error Nonsense(const char* what) {
  return Error{ErrorKind::kSystem, 0, std::string("the answer is not HTTP: ") + what};
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool ReadNumber(std::string_view text, int base, int64_t& number) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return fault == std::errc() && end == text.data() + text.size() && !text.empty() && text.front() != '-';
}

}  // namespace

std::optional<std::string> ReplyReader::Field(std::string_view name) const {
  for (const auto& [key, value] : fields_)
    if (key == name) return value;
  return std::nullopt;
}

Status ReplyReader::ReadHead(std::string_view head) {
  fields_.clear();
  size_t end = head.find("\r\n");
  const std::string_view first = head.substr(0, end);
  int64_t status = 0;
  if (first.size() < 12 || first.substr(0, 9) != "HTTP/1.1 " || !ReadNumber(first.substr(9, 3), 10, status) ||
      (first.size() > 12 && first[12] != ' '))
    return Nonsense("no status line");
  status_ = static_cast<int>(status);
  for (head.remove_prefix(end + 2); !head.empty(); head.remove_prefix(end + 2)) {
    end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return Nonsense("a field without a name");
    std::string name = policy::ToLowerAscii(std::string(line.substr(0, colon)));
    if ((name == "content-length" || name == "transfer-encoding") && Field(name)) return Nonsense("two lengths");
    fields_.emplace_back(std::move(name), std::string(Trimmed(line.substr(colon + 1))));
  }
  return {};
}

Status ReplyReader::BeginBody() {
  const auto length = Field("content-length");
  const auto encoding = Field("transfer-encoding");
  if (length && encoding) return Nonsense("two lengths");
  if (status_ == 204) {
    state_ = State::kWhole;
  } else if (encoding) {
    if (*encoding != "chunked") return Nonsense("an unknown Transfer-Encoding");
    state_ = State::kChunkSize;
  } else {
    if (!length || length->size() > 15 || !ReadNumber(*length, 10, left_)) return Nonsense("no length");
    state_ = left_ == 0 ? State::kWhole : State::kBody;
  }
  return {};
}

Status ReplyReader::ReadChunkSize(std::string_view line) {
  if (line.size() > kMaxChunkLine || !ReadNumber(line, 16, left_) || left_ > kMaxChunkBytes)
    return Nonsense("no chunk size");
  state_ = left_ == 0 ? State::kLastLine : State::kChunk;
  return {};
}

Result<std::optional<std::string>> ReplyReader::TakeLine() {
  const size_t end = buffer_.find("\r\n");
  if (end == std::string::npos) {
    if (buffer_.size() > kMaxChunkLine + 2) return Nonsense("no chunk size");
    return std::optional<std::string>();
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return std::optional<std::string>(std::move(line));
}

Result<bool> ReplyReader::Take(std::string_view bytes, const Sink& body) {
  buffer_.append(bytes);
  while (state_ != State::kWhole) {
    if (state_ == State::kHead) {
      const size_t end = buffer_.find("\r\n\r\n");
      if (std::min(end, buffer_.size()) > kMaxHeadBytes) return Nonsense("the head is too large");
      if (end == std::string::npos) return false;
      CAISSON_TRY_VOID(ReadHead(std::string_view(buffer_).substr(0, end + 2)));
      buffer_.erase(0, end + 4);
      if (status_ >= 100 && status_ < 200) continue;
      CAISSON_TRY_VOID(BeginBody());
    } else if (state_ == State::kBody || state_ == State::kChunk) {
      if (buffer_.empty()) return false;
      const auto size = static_cast<size_t>(std::min<int64_t>(left_, static_cast<int64_t>(buffer_.size())));
      CAISSON_TRY_VOID(body(std::string_view(buffer_).substr(0, size)));
      buffer_.erase(0, size);
      left_ -= static_cast<int64_t>(size);
      if (left_ == 0) state_ = state_ == State::kBody ? State::kWhole : State::kChunkEnd;
    } else {
      CAISSON_TRY(const std::optional<std::string> line, TakeLine());
      if (!line) return false;
      if (state_ == State::kChunkSize) {
        CAISSON_TRY_VOID(ReadChunkSize(*line));
        continue;
      }
      if (!line->empty()) return Nonsense("a chunk without its end");
      state_ = state_ == State::kChunkEnd ? State::kChunkSize : State::kWhole;
    }
  }
  if (!buffer_.empty()) return Nonsense("more than one answer");
  return true;
}

Status ReplyReader::End() const {
  if (state_ == State::kWhole && buffer_.empty()) return {};
  return Error{ErrorKind::kSystem, 0,
               state_ == State::kHead ? "the connection ended without an answer" : "the answer was cut off"};
}

}  // namespace caisson::client
