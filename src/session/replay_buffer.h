// The last output of a command, for those who attach to it later. Keeps at most its capacity and counts what it had to
// drop. Positions count bytes since the beginning of the output, so a reader that went away can go on where it was.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace caisson::session {

class ReplayBuffer {
 public:
  static constexpr size_t kCapacity = size_t{1} << 20;

  explicit ReplayBuffer(size_t capacity = kCapacity) : capacity_(capacity) {}

  void Append(std::string_view bytes) {
    end_ += static_cast<int64_t>(bytes.size());
    if (bytes.size() > capacity_) bytes.remove_prefix(bytes.size() - capacity_);
    // A full ring overwrites its oldest bytes, which begin at `next_`.
    const size_t growth = std::min(bytes.size(), capacity_ - ring_.size());
    ring_.append(bytes.substr(0, growth));
    bytes.remove_prefix(growth);
    while (!bytes.empty()) {
      const size_t size = std::min(bytes.size(), capacity_ - next_);
      ring_.replace(next_, size, bytes.substr(0, size));
      next_ = (next_ + size) % capacity_;
      bytes.remove_prefix(size);
    }
  }

  int64_t begin() const { return end_ - static_cast<int64_t>(ring_.size()); }  // the oldest byte that is kept
  int64_t end() const { return end_; }
  // Bytes that were dropped since the beginning of the output.
  int64_t dropped() const { return begin(); }

  struct Piece {
    int64_t missing = 0;  // bytes between the position asked for and `bytes` that are gone
    std::string bytes;
  };
  // What is kept from `position` on, at most `most` bytes; a position in the future gives nothing.
  Piece ReadFrom(int64_t position, size_t most = SIZE_MAX) const {
    Piece piece;
    position = std::max<int64_t>(position, 0);
    piece.missing = std::max<int64_t>(begin() - position, 0);
    if (position >= end_ || ring_.empty()) return piece;
    const auto skipped = static_cast<size_t>(std::max<int64_t>(position - begin(), 0));
    size_t at = (next_ + skipped) % ring_.size();
    for (size_t left = std::min(most, ring_.size() - skipped); left > 0;) {
      const size_t size = std::min(left, ring_.size() - at);
      piece.bytes.append(ring_, at, size);
      left -= size;
      at = 0;
    }
    return piece;
  }

 private:
  size_t capacity_;
  std::string ring_;
  size_t next_ = 0;  // where the oldest byte is, once the ring is full
  int64_t end_ = 0;
};

}  // namespace caisson::session
