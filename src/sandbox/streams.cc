#include "sandbox/streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "sandbox/file_owner.h"

namespace caisson::sandbox {

namespace {

constexpr size_t kChunk = 65536;
// A descriptor that polls writable accepts at least this much without blocking (PIPE_BUF). Other processes share the
// caller's descriptors, so they must not be switched to non-blocking mode.
constexpr size_t kSafeWrite = 4096;

bool IsWritable(int fd, int timeout_ms) {
  struct pollfd wait {
    fd, POLLOUT, 0
  };
  return ::poll(&wait, 1, timeout_ms) > 0;
}

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status MakeOurs(const UniqueFd& ours, const UniqueFd& workloads, std::optional<uid_t> owner) {
  ::fcntl(ours.get(), F_SETFL, ::fcntl(ours.get(), F_GETFL) | O_NONBLOCK);
  // A program that opens /dev/stdout opens the pipe anew, which requires owning it.
  if (owner && ::fchown(workloads.get(), *owner, static_cast<gid_t>(*owner)) != 0)
    return Error::System(errno, "give the workload its pipe");
  return {};
}

// SECURITY: `root` is the sandbox's tree. No process inside can change its /dev, which is mounted read-only.
Status OpenTerminal(int root, std::optional<uid_t> owner, StreamEnds& ends) {
  const FileOwner as_owner(owner);
  if (!as_owner.holds()) return Error::System(EPERM, "act as the sandbox's user");
  ends.terminal = UniqueFd(::openat(root, "dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  int unlock = 0;
  if (!ends.terminal || ::ioctl(ends.terminal.get(), TIOCSPTLCK, &unlock) != 0)
    return Error::System(errno, "make a terminal in the sandbox");
  ends.workload.terminal = true;
  ends.workload.input = UniqueFd(::ioctl(ends.terminal.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!ends.workload.input) return Error::System(errno, "open the terminal in the sandbox");
  return {};
}

}  // namespace

Result<StreamEnds> OpenStreams(const CommandIo& io, int root, std::optional<uid_t> owner) {
  StreamEnds ends;
  if (io.kind == CommandIo::Kind::kTerminal) {
    CAISSON_TRY_VOID(OpenTerminal(root, owner, ends));
    return ends;
  }
  if (io.kind == CommandIo::Kind::kCapture ? io.input.has_value() : io.stdin_fd >= 0) {
    CAISSON_TRY(Pipe pipe, MakePipe());
    CAISSON_TRY_VOID(MakeOurs(pipe.write, pipe.read, owner));
    ends.input = std::move(pipe.write);
    ends.workload.input = std::move(pipe.read);
  }
  for (const auto& [ours, workloads] :
       {std::pair{&ends.output, &ends.workload.output}, std::pair{&ends.error, &ends.workload.error}}) {
    CAISSON_TRY(Pipe pipe, MakePipe());
    CAISSON_TRY_VOID(MakeOurs(pipe.read, pipe.write, owner));
    *ours = std::move(pipe.read);
    *workloads = std::move(pipe.write);
  }
  return ends;
}

Streams::Streams(linux_sys::EventLoop& loop, const CommandIo& io, StreamEnds ends, const Tags& tags, int64_t budget)
    : loop_(loop),
      io_(io),
      ends_(std::move(ends)),
      tags_(tags),
      budget_(static_cast<uint64_t>(budget)),
      output_(ends_.terminal ? ends_.terminal.get() : ends_.output.get(), is_captured() ? -1 : io.stdout_fd, budget_),
      error_(ends_.terminal ? -1 : ends_.error.get(), is_captured() ? -1 : io.stderr_fd, budget_) {
  const auto copy_if_same = [](Flow& flow, UniqueFd& copy, int other) {
    if (flow.sink < 0 || flow.sink != other) return;
    copy = UniqueFd(::fcntl(flow.sink, F_DUPFD_CLOEXEC, 3));
    flow.sink = copy.get();
  };
  copy_if_same(error_, own_copies_[1], io.stdout_fd);
  copy_if_same(error_, own_copies_[1], io.stdin_fd);
  copy_if_same(output_, own_copies_[0], io.stdin_fd);
}

void Streams::Start() {
  loop_.Watch(output_.source, EPOLLIN, tags_.output);
  if (error_.source >= 0) loop_.Watch(error_.source, EPOLLIN, tags_.error);
  ResizeTerminal();
  if (is_captured()) {
    input_open_ = io_.input.has_value();
    PumpInput();
  } else if (io_.stdin_fd >= 0) {
    input_open_ = true;
    input_is_file_ = !loop_.Watch(io_.stdin_fd, EPOLLIN, tags_.input);
    if (input_is_file_) PumpInput();
  }
}

void Streams::Dispatch(uint32_t tag) {
  if (tag == tags_.output || tag == tags_.output_sink) {
    // One descriptor carries both directions of a terminal, but it can have only one tag.
    if (ends_.terminal && input_waits_for_sink_) PumpInput();
    return Pump(output_, tags_.output, tags_.output_sink);
  }
  if (tag == tags_.error || tag == tags_.error_sink) return Pump(error_, tags_.error, tags_.error_sink);
  if (tag == tags_.input || tag == tags_.input_sink) PumpInput();
}

bool Streams::Read(Flow& flow) {
  char chunk[kChunk];
  const ssize_t size = ::read(flow.source, chunk, sizeof(chunk));
  if (size <= 0) {
    // A terminal returns EIO when no process has its other end open.
    if (size == 0 || errno == EIO) {
      loop_.Forget(flow.source);
      flow.ended = true;
    }
    return false;
  }
  std::string_view bytes(chunk, static_cast<size_t>(size));
  const uint64_t before = total_bytes();
  flow.total += bytes.size();
  flow.kept.Append(bytes);
  const std::string_view within = bytes.substr(0, static_cast<size_t>(budget_ - std::min(before, budget_)));
  if (flow.sink >= 0) flow.pending.append(within);
  if (!is_captured())
    (void)flow.kept.Take(0);
  else if (io_.on_output && !within.empty())
    io_.on_output(&flow == &output_ ? OutputStream::kStdout : OutputStream::kStderr, within);
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
      // The reader is gone: further output is counted and dropped.
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
    // Stops reading: the pipe fills and the workload waits, as it would without a supervisor.
    loop_.Forget(flow.source);
    loop_.Watch(flow.sink, EPOLLOUT, sink_tag);
  } else {
    if (flow.sink >= 0) loop_.Forget(flow.sink);
    if (flow.ended) return;
    loop_.Watch(flow.source, EPOLLIN | (flow.source == ends_.terminal.get() && input_waits_for_sink_ ? EPOLLOUT : 0U),
                source_tag);
  }
}

void Streams::PumpInput() {
  const int sink = ends_.terminal ? ends_.terminal.get() : ends_.input.get();
  while (input_open_) {
    std::string_view bytes = input_pending_;
    if (is_captured()) bytes = std::string_view(*io_.input).substr(input_sent_);
    if (bytes.empty()) {
      if (is_captured()) return CloseInput();
      char chunk[kSafeWrite];
      const ssize_t size = ::read(io_.stdin_fd, chunk, sizeof(chunk));
      if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
      if (size <= 0) return CloseInput();
      input_pending_.assign(chunk, static_cast<size_t>(size));
      bytes = input_pending_;
    }
    const ssize_t size = ::write(sink, bytes.data(), bytes.size());
    if (size < 0 && errno == EAGAIN) {
      input_waits_for_sink_ = true;
      if (!input_is_file_ && !is_captured()) loop_.Forget(io_.stdin_fd);
      if (!ends_.terminal)
        loop_.Watch(sink, EPOLLOUT, tags_.input_sink);
      else
        loop_.Watch(sink, EPOLLIN | EPOLLOUT, tags_.output);
      return;
    }
    if (size < 0) return CloseInput();
    if (is_captured()) {
      input_sent_ += static_cast<size_t>(size);
      continue;
    }
    input_pending_.erase(0, static_cast<size_t>(size));
    if (!input_pending_.empty()) continue;
    if (input_waits_for_sink_) {
      input_waits_for_sink_ = false;
      if (!ends_.terminal)
        loop_.Forget(sink);
      else
        loop_.Watch(sink, EPOLLIN, tags_.output);
      if (!input_is_file_) loop_.Watch(io_.stdin_fd, EPOLLIN, tags_.input);
    }
    if (!input_is_file_) return;  // continue when there is more
  }
}

void Streams::CloseInput() {
  input_open_ = false;
  if (!is_captured() && !input_is_file_) loop_.Forget(io_.stdin_fd);
  if (!ends_.terminal) ends_.input.Reset();
}

void Streams::ResizeTerminal() {
  if (!ends_.terminal) return;
  struct winsize size {};
  if (::ioctl(io_.stdin_fd, TIOCGWINSZ, &size) == 0) ::ioctl(ends_.terminal.get(), TIOCSWINSZ, &size);
}

uint64_t Streams::Share(const Flow& flow) const {
  const uint64_t total = total_bytes();
  if (total <= budget_) return budget_;
  // Shares are proportional to the output of each stream; doubles are exact enough, and both shares are rounded down.
  return static_cast<uint64_t>(static_cast<double>(budget_) * static_cast<double>(flow.total) /
                               static_cast<double>(total));
}

void Streams::Drain() {
  for (Flow* flow : {&output_, &error_}) {
    if (flow->source < 0) continue;
    // At most the capacity of a pipe: its writers are dead.
    do {
      if (flow->sink >= 0 && !flow->pending.empty()) Write(*flow, true);
    } while (Read(*flow));
    if (flow->sink >= 0 && !flow->pending.empty()) Write(*flow, true);
  }
}

}  // namespace caisson::sandbox
