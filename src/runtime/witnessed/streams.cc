#include "runtime/witnessed/streams.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace caisson::runtime::witnessed {

namespace {

constexpr size_t kSafeWrite = 4096;  // what a pipe that is writable takes without blocking
constexpr int kSlowReaderMs = 5000;

bool IsReady(int fd, short events, int timeout_ms) {
  struct pollfd wait {
    fd, events, 0
  };
  return ::poll(&wait, 1, timeout_ms) > 0;
}

}  // namespace

OuterStreams::OuterStreams(const CommandIo& io, int64_t budget)
    : io_(io),
      budget_(static_cast<uint64_t>(budget)),
      captured_(io.kind == CommandIo::Kind::kCapture),
      output_(captured_ ? -1 : io.stdout_fd, budget_),
      error_(captured_ ? -1 : io.stderr_fd, budget_),
      input_open_(captured_ ? io.input.has_value() : io.stdin_fd >= 0) {}

void OuterStreams::Take(OutputStream stream, std::string_view bytes) {
  Flow& flow = stream == OutputStream::kStdout ? output_ : error_;
  const uint64_t before = total_bytes();
  flow.total += bytes.size();
  const std::string_view within = bytes.substr(0, static_cast<size_t>(budget_ - std::min(before, budget_)));
  if (flow.sink >= 0) flow.pending.append(within);
  if (!captured_) return Write(flow, false);
  flow.kept.Append(bytes);
  if (io_.on_output && !within.empty()) io_.on_output(stream, within);
}

void OuterStreams::Write(Flow& flow, bool wait) {
  size_t written = 0;
  while (written < flow.pending.size()) {
    if (!IsReady(flow.sink, POLLOUT, wait ? kSlowReaderMs : 0)) break;
    const ssize_t size =
        ::write(flow.sink, flow.pending.data() + written, std::min(kSafeWrite, flow.pending.size() - written));
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size < 0) {
      flow.sink = -1;  // the reader is gone: further output is counted and dropped
      flow.pending.clear();
      return;
    }
    written += static_cast<size_t>(size);
  }
  flow.pending.erase(0, written);
}

void OuterStreams::Write(bool wait) {
  Write(output_, wait);
  Write(error_, wait);
}

std::string OuterStreams::ReadInput(size_t most) {
  std::string bytes;
  if (captured_) {
    bytes = io_.input->substr(input_sent_, most);
    input_sent_ += bytes.size();
    input_open_ = input_sent_ < io_.input->size();
    return bytes;
  }
  if (!IsReady(io_.stdin_fd, POLLIN, 0)) return bytes;
  bytes.resize(most);
  const ssize_t size = ::read(io_.stdin_fd, bytes.data(), most);
  if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) input_open_ = false;
  bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return bytes;
}

uint64_t OuterStreams::Share(const Flow& flow) const {
  const uint64_t total = total_bytes();
  if (total <= budget_) return budget_;
  return static_cast<uint64_t>(static_cast<double>(budget_) * static_cast<double>(flow.total) /
                               static_cast<double>(total));
}

}  // namespace caisson::runtime::witnessed
