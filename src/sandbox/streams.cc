#include "sandbox/streams.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace caisson::sandbox {

namespace {

constexpr size_t kChunk = 65536;
// A descriptor that polls writable takes at least this much without blocking (PIPE_BUF). Our standard output is shared
// with whoever started us, so it must not be switched to non-blocking mode.
constexpr size_t kSafeWrite = 4096;

bool IsWritable(int fd, int timeout_ms) {
  struct pollfd wait {
    fd, POLLOUT, 0
  };
  return ::poll(&wait, 1, timeout_ms) > 0;
}

}  // namespace

Streams::Streams(linux_sys::EventLoop& loop, const Ends& ends, int64_t budget)
    : loop_(loop),
      ends_(ends),
      budget_(static_cast<uint64_t>(budget)),
      output_(ends.terminal >= 0 ? ends.terminal : ends.stdout_pipe, ends.stdio == Stdio::kCapture ? -1 : STDOUT_FILENO,
              budget_),
      error_(ends.terminal >= 0 ? -1 : ends.stderr_pipe, ends.stdio == Stdio::kCapture ? -1 : STDERR_FILENO, budget_) {}

void Streams::Start() {
  loop_.Watch(output_.source, EPOLLIN, ends_.output_tag);
  if (error_.source >= 0) loop_.Watch(error_.source, EPOLLIN, ends_.error_tag);
  ResizeTerminal();
  if (ends_.stdin_bytes != nullptr) {
    input_open_ = true;
    PumpInput();
  } else if (ends_.stdio != Stdio::kCapture) {
    input_open_ = true;
    input_is_file_ = !loop_.Watch(STDIN_FILENO, EPOLLIN, ends_.input_tag);
    if (input_is_file_) PumpInput();
  }
}

void Streams::Dispatch(uint32_t tag) {
  if (tag == ends_.output_tag || tag == ends_.output_sink_tag) {
    // One descriptor carries both directions of a terminal, and it can have only one tag.
    if (ends_.terminal >= 0 && input_waits_for_sink_) PumpInput();
    return Pump(output_, ends_.output_tag, ends_.output_sink_tag);
  }
  if (tag == ends_.error_tag || tag == ends_.error_sink_tag) return Pump(error_, ends_.error_tag, ends_.error_sink_tag);
  if (tag == ends_.input_tag || tag == ends_.input_sink_tag) PumpInput();
}

bool Streams::Read(Flow& flow) {
  char chunk[kChunk];
  const ssize_t size = ::read(flow.source, chunk, sizeof(chunk));
  if (size <= 0) {
    // EIO is how a terminal says that nobody is at its other end.
    if (size == 0 || errno == EIO) loop_.Forget(flow.source);
    return false;
  }
  std::string_view bytes(chunk, static_cast<size_t>(size));
  const uint64_t before = total_bytes();
  flow.total += bytes.size();
  flow.kept.Append(bytes);
  const std::string_view within = bytes.substr(0, static_cast<size_t>(budget_ - std::min(before, budget_)));
  if (flow.sink >= 0) flow.pending.append(within);
  if (ends_.stdio != Stdio::kCapture)
    (void)flow.kept.Take(0);
  else if (ends_.on_output != nullptr && *ends_.on_output && !within.empty())
    (*ends_.on_output)(&flow == &output_ ? OutputStream::kStdout : OutputStream::kStderr, within);
  return true;
}

void Streams::Write(Flow& flow, bool may_wait) {
  size_t written = 0;
  while (written < flow.pending.size()) {
    if (!IsWritable(flow.sink, may_wait ? 5000 : 0)) break;
    const ssize_t size =
        ::write(flow.sink, flow.pending.data() + written, std::min(kSafeWrite, flow.pending.size() - written));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      // Whoever read our output is gone: nobody is left to write for.
      flow.sink = -1;
      flow.pending.clear();
      return;
    }
    written += static_cast<size_t>(size);
  }
  flow.pending.erase(0, written);
}

void Streams::Pump(Flow& flow, uint32_t source_tag, uint32_t sink_tag) {
  if (flow.pending.empty()) Read(flow);
  if (flow.sink < 0) return;
  Write(flow, false);
  if (!flow.pending.empty()) {
    // Stop reading: the pipe fills and the workload waits, as it would without us.
    loop_.Forget(flow.source);
    loop_.Watch(flow.sink, EPOLLOUT, sink_tag);
  } else {
    if (flow.sink >= 0) loop_.Forget(flow.sink);
    loop_.Watch(flow.source, EPOLLIN | (flow.source == ends_.terminal && input_waits_for_sink_ ? EPOLLOUT : 0U),
                source_tag);
  }
}

void Streams::PumpInput() {
  const int sink = ends_.terminal >= 0 ? ends_.terminal : ends_.stdin_pipe->get();
  while (input_open_) {
    std::string_view bytes = input_pending_;
    if (ends_.stdin_bytes != nullptr) bytes = std::string_view(*ends_.stdin_bytes).substr(input_sent_);
    if (bytes.empty()) {
      if (ends_.stdin_bytes != nullptr) return CloseInput();
      char chunk[kSafeWrite];
      const ssize_t size = ::read(STDIN_FILENO, chunk, sizeof(chunk));
      if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
      if (size <= 0) return CloseInput();
      input_pending_.assign(chunk, static_cast<size_t>(size));
      bytes = input_pending_;
    }
    const ssize_t size = ::write(sink, bytes.data(), bytes.size());
    if (size < 0 && errno == EAGAIN) {
      input_waits_for_sink_ = true;
      if (!input_is_file_ && ends_.stdin_bytes == nullptr) loop_.Forget(STDIN_FILENO);
      if (ends_.terminal < 0)
        loop_.Watch(sink, EPOLLOUT, ends_.input_sink_tag);
      else
        loop_.Watch(sink, EPOLLIN | EPOLLOUT, ends_.output_tag);
      return;
    }
    if (size < 0) return CloseInput();
    if (ends_.stdin_bytes != nullptr) {
      input_sent_ += static_cast<size_t>(size);
      continue;
    }
    input_pending_.erase(0, static_cast<size_t>(size));
    if (!input_pending_.empty()) continue;
    if (input_waits_for_sink_) {
      input_waits_for_sink_ = false;
      if (ends_.terminal < 0)
        loop_.Forget(sink);
      else
        loop_.Watch(sink, EPOLLIN, ends_.output_tag);
      if (!input_is_file_) loop_.Watch(STDIN_FILENO, EPOLLIN, ends_.input_tag);
    }
    if (!input_is_file_) return;  // come back when there is more
  }
}

void Streams::CloseInput() {
  input_open_ = false;
  if (ends_.stdin_bytes == nullptr && !input_is_file_) loop_.Forget(STDIN_FILENO);
  if (ends_.terminal < 0) ends_.stdin_pipe->Reset();
}

void Streams::ResizeTerminal() {
  if (ends_.terminal < 0) return;
  struct winsize size {};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) ::ioctl(ends_.terminal, TIOCSWINSZ, &size);
}

uint64_t Streams::Share(const Flow& flow) const {
  const uint64_t total = total_bytes();
  if (total <= budget_) return budget_;
  // In proportion to what each wrote; doubles are exact enough, and both shares are rounded down.
  return static_cast<uint64_t>(static_cast<double>(budget_) * static_cast<double>(flow.total) /
                               static_cast<double>(total));
}

void Streams::Drain() {
  for (Flow* flow : {&output_, &error_}) {
    if (flow->source < 0) continue;
    // At most what a pipe holds: its writers are dead.
    do {
      if (flow->sink >= 0 && !flow->pending.empty()) Write(*flow, true);
    } while (Read(*flow));
    if (flow->sink >= 0 && !flow->pending.empty()) Write(*flow, true);
  }
}

}  // namespace caisson::sandbox
