#include "egress/client_hello.h"

#include <algorithm>
#include <array>
#include <iterator>

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
  const uint8_t* const begin = bytes.data();
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
      if (size == body + 4) {
        ClientHello hello = ReadHello({message.data() + 4, body});
        if (hello.state == State::kWhole) hello.size = static_cast<size_t>(part.data() + part.size() - begin);
        return hello;
      }
    }
    bytes = bytes.subspan(5 + part.size());
  }
  return more;
}

SecondHello::Verdict SecondHello::Judge(std::span<const uint8_t> bytes) {
  constexpr uint8_t kChangeCipherSpec = 20, kAlert = 21, kHandshake = 22, kApplicationData = 23;
  Verdict verdict;
  while (verdict.forward < bytes.size()) {
    const std::span<const uint8_t> rest = bytes.subspan(verdict.forward);
    if (state_ == State::kOver) {
      verdict.forward = bytes.size();
      return verdict;
    }
    if (left_ > 0) {
      const size_t part = std::min(left_, rest.size());
      left_ -= part;
      verdict.forward += part;
      continue;
    }
    if (rest[0] == kHandshake) {
      if (state_ == State::kUnanswered) return verdict;  // waits: no client sends it before the server's answer
      begun_ = true;
      const ClientHello hello = ParseClientHello(rest);
      verdict.state = hello.state;
      if (hello.state != ClientHello::State::kWhole) return verdict;
      verdict.mismatch = hello.name != name_;
      if (verdict.mismatch) return verdict;
      left_ = hello.size;
      state_ = State::kOver;
      continue;
    }
    // Early data and the record that middleboxes expect may precede the second ClientHello.
    if (rest[0] != kChangeCipherSpec && rest[0] != kAlert && rest[0] != kApplicationData) {
      verdict.state = ClientHello::State::kNotTls;
      return verdict;
    }
    if (rest.size() < 5) return verdict;
    left_ = 5 + (static_cast<size_t>(rest[3]) << 8 | rest[4]);
  }
  return verdict;
}

bool SecondHello::ReadAnswer(std::span<const uint8_t> bytes) {
  if (state_ != State::kUnanswered) return true;
  // A HelloRetryRequest is a ServerHello with this for its random number.
  constexpr uint8_t kRetry[] = {0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C,
                                0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB,
                                0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C};
  constexpr uint8_t kHandshake = 22, kServerHello = 2;
  constexpr size_t kRandom = 5 + 4 + 2;
  if (bytes.empty()) return false;
  if (bytes[0] != kHandshake || (bytes.size() > 5 && bytes[5] != kServerHello)) {
    state_ = State::kOver;
    return true;
  }
  if (bytes.size() < 5) return false;
  // No server sends so short a record. It could be the beginning of either kind of ServerHello.
  const bool is_short = (static_cast<size_t>(bytes[3]) << 8 | bytes[4]) < kRandom - 5 + sizeof(kRetry);
  if (!is_short && bytes.size() < kRandom + sizeof(kRetry)) return false;
  const bool retry = is_short || std::equal(std::begin(kRetry), std::end(kRetry), bytes.begin() + kRandom);
  state_ = retry ? State::kRetry : State::kOver;
  return true;
}

}  // namespace caisson::egress
