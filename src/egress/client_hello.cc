#include "egress/client_hello.h"

#include <algorithm>
#include <array>

namespace caisson::egress {
namespace {

using State = ClientHello::State;

// Reads fields that follow their lengths. After the first field that does not fit, every read returns nothing.
class FieldReader {
 public:
  explicit FieldReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  size_t Number(size_t width) {
    size_t value = 0;
    for (const uint8_t byte : Bytes(width)) value = value << 8 | byte;
    return value;
  }
  std::span<const uint8_t> Bytes(size_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const std::span<const uint8_t> bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }
  FieldReader Field(size_t width) { return FieldReader(Bytes(Number(width))); }

 private:
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

// RFC 6066: a list of names, each with its type. Only one type exists, and the list has at most one name of each type.
State ReadServerName(FieldReader extension, std::string& name) {
  FieldReader list = extension.Field(2);
  if (!extension.ok() || !extension.at_end()) return State::kNotTls;
  const size_t type = list.Number(1);
  FieldReader host = list.Field(2);
  if (!list.ok()) return State::kNotTls;
  if (type != 0 || !list.at_end() || host.at_end()) return State::kBadName;
  while (!host.at_end()) {
    const auto c = static_cast<char>(host.Number(1));
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') || lower == '-' || lower == '_' ||
          lower == '.'))
      return State::kBadName;
    name.push_back(lower);
  }
  return name.size() <= 253 ? State::kWhole : State::kBadName;
}

ClientHello ReadHello(std::span<const uint8_t> body) {
  FieldReader hello(body);
  hello.Bytes(2 + 32);  // version, random
  hello.Field(1);       // session
  hello.Field(2);       // cipher suites
  hello.Field(1);       // compression
  if (!hello.ok()) return {State::kNotTls, ""};
  if (hello.at_end()) return {State::kNoName, ""};  // no extensions: a client older than those of TLS 1.0
  FieldReader extensions = hello.Field(2);
  if (!hello.ok() || !hello.at_end()) return {State::kNotTls, ""};
  ClientHello result{State::kNoName, ""};
  while (!extensions.at_end()) {
    const size_t type = extensions.Number(2);
    FieldReader extension = extensions.Field(2);
    if (!extensions.ok()) return {State::kNotTls, ""};
    if (type != 0) continue;
    if (result.state != State::kNoName) return {State::kBadName, ""};
    result.state = ReadServerName(extension, result.name);
    if (result.state != State::kWhole) return {result.state, ""};
  }
  return result;
}

}  // namespace

ClientHello ParseClientHello(std::span<const uint8_t> bytes) {
  constexpr uint8_t kHandshake = 22, kClientHello = 1;
  std::array<uint8_t, kMaxClientHelloBytes> message;
  size_t size = 0;
  const bool full = bytes.size() >= kMaxClientHelloBytes;
  bytes = bytes.first(std::min(bytes.size(), kMaxClientHelloBytes));
  const ClientHello more{full ? State::kOversized : State::kMore, ""};
  while (!bytes.empty()) {
    if (bytes[0] != kHandshake || (bytes.size() > 1 && bytes[1] != 3)) return {State::kNotTls, ""};
    if (bytes.size() < 5) return more;
    const size_t length = static_cast<size_t>(bytes[3]) << 8 | bytes[4];
    if (length == 0 || length > kMaxClientHelloBytes) return {State::kNotTls, ""};
    const std::span<const uint8_t> part = bytes.subspan(5, std::min(length, bytes.size() - 5));
    std::copy(part.begin(), part.end(), message.begin() + static_cast<std::ptrdiff_t>(size));
    size += part.size();
    if (size >= 1 && message[0] != kClientHello) return {State::kNotTls, ""};
    if (size >= 4) {
      const size_t body = static_cast<size_t>(message[1]) << 16 | static_cast<size_t>(message[2]) << 8 | message[3];
      if (body + 4 > kMaxClientHelloBytes) return {State::kOversized, ""};
      // A client sends nothing else in the records of its ClientHello. Further bytes would be forwarded unread.
      if (size > body + 4 || (size == body + 4 && part.size() != length)) return {State::kNotTls, ""};
      if (size == body + 4) return ReadHello({message.data() + 4, body});
    }
    bytes = bytes.subspan(5 + part.size());
  }
  return more;
}

}  // namespace caisson::egress
