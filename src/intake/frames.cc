#include "intake/frames.h"

#include <algorithm>
#include <utility>

namespace caisson::intake {
namespace {

constexpr size_t kNameLengthBytes = 4, kBodyLengthBytes = 8;
constexpr size_t kHeadBytes = 1 + kNameLengthBytes + kBodyLengthBytes;
constexpr std::string_view kKinds = "fxdl+h-#.!?";
constexpr std::string_view kLastKinds = ".!?";

void AppendNumber(std::string& text, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(number >> (8 * i) & 0xFF));
}

uint64_t ReadNumber(std::string_view text) {
  uint64_t number = 0;
  for (size_t i = 0; i < text.size(); ++i) number |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  return number;
}

Error Broken(const char* what) { return Error::Invalid(std::string("the unpacking helper's answer ") + what); }

// Moves bytes from the front of `bytes` to `text` until it has `size`; true if it is complete.
bool Fill(std::string& text, uint64_t size, std::string_view& bytes) {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(size - text.size(), bytes.size()));
  text.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  return text.size() == size;
}

}  // namespace

std::string Encode(const Frame& frame) {
  std::string text(1, static_cast<char>(frame.kind));
  AppendNumber(text, frame.name.size(), kNameLengthBytes);
  AppendNumber(text, frame.body.size(), kBodyLengthBytes);
  return text.append(frame.name).append(frame.body);
}

Status FrameReader::ReadHead() {
  const std::string_view head = head_;
  if (kKinds.find(head[0]) == std::string_view::npos) return Broken("has a frame of an unknown kind");
  frame_ = Frame{};
  frame_.kind = static_cast<FrameKind>(head[0]);
  name_size_ = static_cast<size_t>(ReadNumber(head.substr(1, kNameLengthBytes)));
  body_size_ = ReadNumber(head.substr(1 + kNameLengthBytes));
  if (name_size_ > max_name_) return Broken("has a name that is too long");
  if (body_size_ > max_body_) return Broken("has a file that is too large");
  return {};
}

Status FrameReader::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (ended_) return Broken("goes on after its end");
    if (head_.size() < kHeadBytes) {
      if (!Fill(head_, kHeadBytes, bytes)) return {};
      CAISSON_TRY_VOID(ReadHead());
    }
    if (!Fill(frame_.name, name_size_, bytes) || !Fill(frame_.body, body_size_, bytes)) return {};
    head_.clear();
    ended_ = kLastKinds.find(static_cast<char>(frame_.kind)) != std::string_view::npos;
    CAISSON_TRY_VOID(deliver_(std::move(frame_)));
  }
  return {};
}

Status FrameReader::Finish() const {
  if (!ended_) return Broken("breaks off");
  return {};
}

}  // namespace caisson::intake
