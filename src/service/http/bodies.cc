#include "service/http/bodies.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "linux/files.h"

namespace caisson::service::http {

void SegmentStream::Add(std::string text) {
  bytes_ += static_cast<int64_t>(text.size());
  if (!segments_.empty() && !segments_.back().file) {
    segments_.back().text += text;
    segments_.back().left += static_cast<int64_t>(text.size());
    return;
  }
  Segment segment;
  segment.left = static_cast<int64_t>(text.size());
  segment.text = std::move(text);
  segments_.push_back(std::move(segment));
}

void SegmentStream::Add(UniqueFd file, int64_t bytes, int64_t offset) {
  bytes_ += bytes;
  Segment segment;
  segment.file = std::move(file);
  segment.left = bytes;
  segment.offset = offset;
  segments_.push_back(std::move(segment));
}

BodyStream::Piece SegmentStream::Next() {
  Piece piece;
  while (at_ < segments_.size() && static_cast<int64_t>(piece.bytes.size()) < kPieceBytes) {
    Segment& segment = segments_[at_];
    if (segment.left == 0) {
      segment = {};  // gives its memory and its descriptor back
      ++at_;
      continue;
    }
    const auto room = static_cast<size_t>(kPieceBytes) - piece.bytes.size();
    const size_t want = std::min(room, static_cast<size_t>(segment.left));
    const size_t before = piece.bytes.size();
    if (!segment.file) {
      piece.bytes.append(segment.text, static_cast<size_t>(segment.offset), want);
      segment.offset += static_cast<int64_t>(want);
      segment.left -= static_cast<int64_t>(want);
      continue;
    }
    piece.bytes.resize(before + want);
    const ssize_t count = ::pread(segment.file.get(), piece.bytes.data() + before, want, segment.offset);
    piece.bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {"", Piece::Then::kEnd, true};
    segment.offset += count;
    segment.left -= count;
  }
  if (at_ == segments_.size()) piece.then = Piece::Then::kEnd;
  return piece;
}

Result<std::string_view> WholeBody(const Request& request, std::string& held) {
  if (request.body_file < 0) return std::string_view(request.body);
  CAISSON_TRY(held, linux_sys::ReadAt(request.body_file, 0, request.content_length));
  return std::string_view(held);
}

Result<Streamed> Spooled(Response response, const std::string& directory) {
  CAISSON_TRY(UniqueFd file, linux_sys::OpenUnnamed(directory));
  CAISSON_TRY_VOID(linux_sys::WriteAll(file.get(), response.body));
  const auto bytes = static_cast<int64_t>(response.body.size());
  response.body = std::string();
  auto body = std::make_unique<SegmentStream>();
  body->Add(std::move(file), bytes);
  return Streamed{std::move(response), bytes, std::move(body)};
}

}  // namespace caisson::service::http
