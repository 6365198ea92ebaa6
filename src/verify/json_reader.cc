#include "verify/json_reader.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "base/utf8.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

// Columns count code points, as editors do.
std::string PlaceOf(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::string_view in_line = before.substr(line_start);
  const auto column = 1 + std::count_if(in_line.begin(), in_line.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// The library's message without its own place (wrong for multi-byte text) and without the token it quotes, which comes
// from the sender and may be as long as the document.
std::string ReasonOf(const nlohmann::detail::exception& exception) {
  std::string reason = exception.what();
  constexpr std::string_view kPlace = ", column ";
  if (const size_t place = reason.find(kPlace); place != std::string::npos) {
    if (const size_t colon = reason.find(": ", place); colon != std::string::npos) reason.erase(0, colon + 2);
  }
  const size_t quote = reason.find("; last read: '");
  if (quote != std::string::npos) {
    const size_t expected = reason.rfind("'; expected ");
    reason.erase(quote, expected == std::string::npos || expected < quote ? std::string::npos : expected + 1 - quote);
  }
  return EscapeForTerminal(reason);
}

// Builds the tree and stops at the first fault. The library's own tree builder keeps the last of two equal keys and
// turns integers that do not fit into floating point; both are faults here.
class TreeBuilder : public nlohmann::json_sax<json> {
 public:
  TreeBuilder(std::string_view text, const JsonBounds& bounds) : text_(text), bounds_(bounds) {}

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(int64_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return FailNumber();
    return Add(static_cast<int64_t>(value)) != nullptr;
  }
  bool number_float(double value, const std::string& spelling) override {
    // An integer beyond 64 bits arrives here rounded.
    if (spelling.find_first_of(".eE") == std::string::npos) return FailNumber();
    return Add(value) != nullptr;
  }
  bool string(std::string& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(json::binary_t&) override { return Fail(PathOfNext(), "binary values do not exist in JSON"); }

  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Frame& frame = open_.back();
    frame.key = std::move(name);
    if (frame.container->contains(frame.key)) return Fail(PathOfNext(), "duplicate key");
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& exception) override {
    constexpr int kNumberOverflow = 406;
    if (exception.id == kNumberOverflow) return FailNumber();
    return Fail(PlaceOf(text_, position == 0 ? 0 : position - 1), ReasonOf(exception));
  }

  Result<json> Take() && {
    if (error_) return *std::move(error_);
    return std::move(root_);
  }

 private:
  struct Frame {
    json* container;  // owned by its parent, whose other children are not touched while this one is open
    std::string key;  // of the member being read, for objects
  };

  std::string PathOfNext() const {
    std::string path;
    for (const Frame& frame : open_) {
      // An array's open child has been appended already, unless it is the value that could not be added.
      path = frame.container->is_object() ? PathOfMember(path, frame.key) : PathOfElement(path, IndexIn(frame));
    }
    return path.empty() ? "document" : path;
  }

  size_t IndexIn(const Frame& frame) const {
    const bool is_innermost = &frame == &open_.back();
    return is_innermost ? frame.container->size() : frame.container->size() - 1;
  }

  bool Fail(const std::string& place, const std::string& reason) {
    if (!error_) error_ = Error::Invalid(place + ": " + reason);
    return false;
  }

  bool FailNumber() { return Fail(PathOfNext(), "number is too large"); }

  json* Add(json value) {
    if (++values_ > bounds_.max_values) {
      Fail("document", "holds more than " + std::to_string(bounds_.max_values) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Frame& frame = open_.back();
    if (frame.container->is_array()) {
      frame.container->push_back(std::move(value));
      return &frame.container->back();
    }
    json& member = (*frame.container)[frame.key];
    member = std::move(value);
    return &member;
  }

  bool Open(json container) {
    if (open_.size() >= bounds_.max_depth) {
      return Fail(PathOfNext(), "nested deeper than " + std::to_string(bounds_.max_depth) + " levels");
    }
    json* added = Add(std::move(container));
    if (added == nullptr) return false;
    open_.push_back({added, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string_view text_;
  const JsonBounds& bounds_;
  json root_;
  std::vector<Frame> open_;
  size_t values_ = 0;
  std::optional<Error> error_;
};

// Refuses bytes that the library accepts silently: it skips a byte order mark and treats a NUL byte as the end of the
// text.
Status CheckBytes(std::string_view text, const JsonBounds& bounds) {
  if (text.size() > bounds.max_bytes) {
    return Error::Invalid("document: takes " + std::to_string(text.size()) + " bytes; at most " +
                          std::to_string(bounds.max_bytes) + " (" + FormatSize(static_cast<int64_t>(bounds.max_bytes)) +
                          ") are read");
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    return Error::Invalid("line 1, column 1: begins with a byte order mark; save the text as UTF-8 without one");
  }
  for (size_t offset = 0; offset < text.size();) {
    const DecodedCodePoint next = DecodeUtf8(text.substr(offset));
    if (!next.valid) return Error::Invalid(PlaceOf(text, offset) + ": invalid UTF-8");
    if (next.code_point == 0) return Error::Invalid(PlaceOf(text, offset) + ": raw NUL byte");
    offset += next.length;
  }
  return {};
}

bool IsPlainKey(std::string_view key) {
  return !key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

std::string PathOfMember(std::string_view parent, std::string_view key) {
  std::string path(parent);
  if (!IsPlainKey(key)) return path + "[" + Quoted(key) + "]";
  if (!path.empty()) path += '.';
  return path.append(key);
}

std::string PathOfElement(std::string_view parent, size_t index) {
  return std::string(parent) + "[" + std::to_string(index) + "]";
}

Result<json> ReadJson(std::string_view text, const JsonBounds& bounds) {
  CAISSON_TRY_VOID(CheckBytes(text, bounds));
  TreeBuilder builder(text, bounds);
  const bool complete = json::sax_parse(text.begin(), text.end(), &builder);
  Result<json> tree = std::move(builder).Take();
  // The library stops without an exception only when the builder told it to, and then the builder kept the error.
  CAISSON_CHECK(complete == tree.has_value());
  return tree;
}

}  // namespace caisson::verify
