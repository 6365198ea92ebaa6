#include "session/stream_pumps.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

namespace caisson::session {

namespace {

constexpr size_t kPieceBytes = 65536;
// A patient reader may be this far behind before the command has to wait for it; far less than what is kept.
constexpr int64_t kMostLag = int64_t{256} << 10;
// What is passed on after a command's end, though processes it left behind keep writing.
constexpr int64_t kMostAfterEnd = int64_t{2} << 20;
constexpr char kEndOfInput = 0x04;

void MakeNonBlocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

OutputPump::OutputPump(Reactor& reactor, UniqueFd source, Callbacks callbacks)
    : reactor_(reactor), source_(std::move(source)), callbacks_(std::move(callbacks)) {
  MakeNonBlocking(source_.get());
  tag_ = reactor_.Add(source_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); });
}

OutputPump::~OutputPump() {
  reactor_.Remove(tag_);
  for (auto& [id, reader] : readers_) reactor_.Remove(reader.tag);
}

int64_t OutputPump::MostLag() const {
  int64_t lag = 0;
  for (const auto& [id, reader] : readers_) {
    if (reader.patient) lag = std::max(lag, kept_.end() - reader.position);
  }
  return lag;
}

int64_t OutputPump::AddReader(uint64_t id, UniqueFd sink, bool patient) {
  const int64_t missing = kept_.dropped();
  MakeNonBlocking(sink.get());
  Reader& reader = readers_[id];
  reader.sink = std::move(sink);
  reader.patient = patient;
  reader.position = missing;
  // Without events: only to learn that the other end is gone.
  reader.tag = reactor_.Add(reader.sink.get(), 0, [this, id](uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) == 0) return Pass(id);
    RemoveReader(id);
    if (callbacks_.on_reader_gone) callbacks_.on_reader_gone(id);
  });
  Pass(id);
  return missing;
}

void OutputPump::RemoveReader(uint64_t id) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  reactor_.Remove(found->second.tag);
  readers_.erase(found);
  Regulate();
}

void OutputPump::Pass(uint64_t id) {
  while (true) {
    const auto found = readers_.find(id);
    if (found == readers_.end()) return;
    Reader& reader = found->second;
    const ReplayBuffer::Piece piece = kept_.ReadFrom(reader.position, kPieceBytes);
    if (piece.missing > 0) {
      reader.position += piece.missing;
      if (callbacks_.on_gap) callbacks_.on_gap(id, piece.missing);
    }
    ssize_t count = 0;
    if (!piece.bytes.empty()) {
      count = ::write(reader.sink.get(), piece.bytes.data(), piece.bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN) {
        reactor_.Remove(reader.tag);
        readers_.erase(found);
        if (callbacks_.on_reader_gone) callbacks_.on_reader_gone(id);
        return Regulate();
      }
    }
    if (count > 0) reader.position += count;
    const bool complete = reader.position >= kept_.end();
    if (complete && drained_) {
      reactor_.Remove(reader.tag);
      readers_.erase(found);
      if (callbacks_.on_reader_gone) callbacks_.on_reader_gone(id);
      return Regulate();
    }
    const bool waits = !complete;
    if (waits != reader.waits) {
      reader.waits = waits;
      reactor_.Change(reader.tag, waits ? uint32_t{EPOLLOUT} : 0);
    }
    if (complete || count < 0) return Regulate();
  }
}

void OutputPump::PassToAll() {
  std::vector<uint64_t> ids;
  for (const auto& [id, reader] : readers_) {
    if (!reader.waits) ids.push_back(id);
  }
  for (const uint64_t id : ids) Pass(id);
}

void OutputPump::Regulate() {
  if (!source_) return;
  const bool pause = MostLag() > kMostLag && !drained_;
  if (pause == paused_) return;
  paused_ = pause;
  // Not watched at all while it waits: a hang-up would be reported again and again.
  reactor_.Remove(tag_);
  if (!pause) tag_ = reactor_.Add(source_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); });
}

bool OutputPump::ReadOnce() {
  std::array<char, kPieceBytes> buffer;
  const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return true;
  if (count < 0 && errno == EAGAIN) {
    if (ended_) drained_ = true;
    return false;
  }
  // A terminal whose last process is gone says EIO.
  if (count <= 0) {
    CloseSource();
    return false;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(count));
  kept_.Append(bytes);
  if (callbacks_.on_bytes) callbacks_.on_bytes(bytes);
  if (ended_) {
    read_since_end_ += count;
    if (read_since_end_ > kMostAfterEnd) drained_ = true;
  }
  return true;
}

void OutputPump::OnReadable() {
  ReadOnce();
  PassToAll();
  Regulate();
}

void OutputPump::CloseSource() {
  if (!source_) return;
  reactor_.Remove(tag_);
  source_.Reset();
  drained_ = true;
  if (callbacks_.on_end) callbacks_.on_end();
}

void OutputPump::CommandEnded() {
  if (ended_) return;
  ended_ = true;
  if (!source_) {
    drained_ = true;
  } else {
    // With a patient reader that lags, the remainder is read as it catches up.
    while (source_ && !drained_ && MostLag() <= kMostLag && ReadOnce()) PassToAll();
  }
  std::vector<uint64_t> ids;
  for (const auto& [id, reader] : readers_) ids.push_back(id);
  for (const uint64_t id : ids) Pass(id);
  Regulate();
}

InputPump::InputPump(Reactor& reactor, UniqueFd target, bool terminal, std::function<void(std::string_view)> on_bytes)
    : reactor_(reactor), target_(std::move(target)), terminal_(terminal), on_bytes_(std::move(on_bytes)) {
  MakeNonBlocking(target_.get());
}

InputPump::~InputPump() {
  reactor_.Remove(source_tag_);
  reactor_.Remove(target_tag_);
}

void InputPump::SetSource(UniqueFd source) {
  reactor_.Remove(source_tag_);
  source_ = std::move(source);
  source_ended_ = false;
  if (!source_) return;
  MakeNonBlocking(source_.get());
  Regulate();
}

void InputPump::CloseTarget() {
  reactor_.Remove(target_tag_);
  target_.Reset();
  pending_.clear();
  Regulate();
}

void InputPump::Regulate() {
  const bool wants_more = source_ && target_ && !source_ended_ && pending_.empty();
  if (!wants_more) reactor_.Remove(source_tag_);
  if (wants_more && source_tag_ == 0)
    source_tag_ = reactor_.Add(source_.get(), EPOLLIN, [this](uint32_t) { OnReadable(); });
  const bool writes = target_ && !pending_.empty();
  if (!writes) reactor_.Remove(target_tag_);
  if (writes && target_tag_ == 0) target_tag_ = reactor_.Add(target_.get(), EPOLLOUT, [this](uint32_t) { Write(); });
}

void InputPump::OnReadable() {
  std::array<char, kPieceBytes> buffer;
  const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count > 0) {
    pending_.assign(buffer.data(), static_cast<size_t>(count));
    if (on_bytes_) on_bytes_(pending_);
    return Write();
  }
  source_ended_ = true;
  // A client of a terminal that is gone does not end the terminal's input: another may take its place.
  if (terminal_) return Regulate();
  CloseTarget();
}

void InputPump::TypeEnd() {
  if (!terminal_ || !target_) return;
  pending_ += kEndOfInput;
  Write();
}

void InputPump::Write() {
  while (!pending_.empty() && target_) {
    const ssize_t count = ::write(target_.get(), pending_.data(), pending_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      CloseTarget();  // the command does not read any more
      source_.Reset();
      return;
    }
    pending_.erase(0, static_cast<size_t>(count));
  }
  Regulate();
}

}  // namespace caisson::session
