#include "agent/nested.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/protocol.h"
#include "base/clock.h"
#include "launcher/channel.h"
#include "launcher/messages.h"
#include "linux/files.h"

namespace caisson::agent {

namespace {

// The runtime outside counts every byte and decides about the limit. It must receive more than the limit allows before
// the supervisor stops the command.
constexpr int64_t kOutputSlack = int64_t{4} * kPieceBytes;
constexpr size_t kMaxPendingInput = size_t{256} << 10;
// From the command's outcome to the end of its streams, which the supervisor closes right after.
constexpr int64_t kDrainMs = 2'000;

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe for a command");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status MakeNonblocking(const UniqueFd& fd) {
  if (fd && ::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return Error::System(errno, "prepare a command's stream");
  return {};
}

// One command: its streams here, and the supervisor's messages about it.
class NestedCommand {
 public:
  NestedCommand(Channel& channel, int supervisor, const Execute& execute)
      : channel_(channel), supervisor_(supervisor), execute_(execute) {}

  Result<Outcome> Run();

 private:
  Status Start();
  Result<UniqueFd> OpenTerminal();
  Status Turn();
  Status TakeAnswer();
  Status TakeFrames();
  void OnFrame(const Frame& frame);
  void PassInput();
  void PassOutput(OutputStream stream, UniqueFd& source);
  void Drain();

  Channel& channel_;
  const int supervisor_;
  const Execute& execute_;
  UniqueFd input_, output_, error_;  // of a terminal: only output_, for both directions
  std::string pending_input_;
  bool input_ended_ = false;
  std::optional<Ending> stop_;
  std::optional<CommandOutcome> outcome_;
};

// The supervisor joins the command's own terminal to this one, and asks it for the size of the window.
Result<UniqueFd> NestedCommand::OpenTerminal() {
  output_ = UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!output_ || ::unlockpt(output_.get()) != 0) return Error::System(errno, "make a terminal");
  UniqueFd other(::ioctl(output_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  struct termios settings {};
  if (!other || ::tcgetattr(other.get(), &settings) != 0) return Error::System(errno, "open a terminal");
  ::cfmakeraw(&settings);
  const struct winsize size { execute_.rows, execute_.columns, 0, 0 };
  if (::tcsetattr(other.get(), TCSANOW, &settings) != 0 || ::ioctl(output_.get(), TIOCSWINSZ, &size) != 0)
    return Error::System(errno, "prepare a terminal");
  return other;
}

Status NestedCommand::Start() {
  launcher::ExecuteMessage message;
  message.command = execute_.command;
  message.timeout_ms = execute_.timeout_ms;
  message.timeout_name = execute_.timeout_name;
  message.signal_grace_ms = execute_.timeout_ms;  // the runtime outside counts the grace and stops the command
  message.wants_violations = true;
  if (execute_.terminal) {
    message.io = CommandIo::Kind::kTerminal;
    CAISSON_TRY(message.stdin_fd, OpenTerminal());
    message.stdout_fd = UniqueFd(::fcntl(message.stdin_fd->get(), F_DUPFD_CLOEXEC, 3));
    if (!*message.stdout_fd) return Error::System(errno, "copy a descriptor");
  } else {
    message.io = CommandIo::Kind::kDescriptors;
    if (execute_.has_input) {
      CAISSON_TRY(Pipe pipe, MakePipe());
      input_ = std::move(pipe.write);
      message.stdin_fd = std::move(pipe.read);
    }
    CAISSON_TRY(Pipe output, MakePipe());
    CAISSON_TRY(Pipe error, MakePipe());
    output_ = std::move(output.read);
    error_ = std::move(error.read);
    message.stdout_fd = std::move(output.write);
    message.stderr_fd = std::move(error.write);
  }
  for (const UniqueFd* fd : {&input_, &output_, &error_}) CAISSON_TRY_VOID(MakeNonblocking(*fd));
  CAISSON_TRY(const launcher::Encoded encoded, launcher::Encode(message));
  return launcher::Send(supervisor_, launcher::Kind::kExecute, encoded, true);
}

Result<Outcome> NestedCommand::Run() {
  CAISSON_TRY_VOID(Start());
  CAISSON_TRY_VOID(TakeFrames());  // that arrived together with the command
  while (!outcome_) CAISSON_TRY_VOID(Turn());
  Drain();
  Outcome outcome;
  outcome.outcome = *std::move(outcome_);
  if (stop_ && outcome.outcome.ending == Ending::kCancelled) outcome.outcome.ending = *stop_;
  return outcome;
}

Status NestedCommand::Turn() {
  const bool wants_output = !channel_.is_full();
  const int sink = execute_.terminal ? output_.get() : input_.get();
  struct pollfd waits[] = {
      {supervisor_, POLLIN, 0},
      {pending_input_.size() < kMaxPendingInput ? channel_.input() : -1, POLLIN, 0},
      {channel_.has_pending() ? channel_.output() : -1, POLLOUT, 0},
      {wants_output ? output_.get() : -1, POLLIN, 0},
      {wants_output ? error_.get() : -1, POLLIN, 0},
      {!pending_input_.empty() ? sink : -1, POLLOUT, 0},
  };
  if (::poll(waits, std::size(waits), -1) < 0) {
    if (errno == EINTR) return {};
    return Error::System(errno, "wait for the command");
  }
  if (waits[2].revents != 0 && !channel_.Flush()) return Error::System(EPIPE, "the runtime outside is gone");
  if (waits[1].revents != 0) {
    if (!channel_.Fill()) return Error::System(ECONNRESET, "the runtime outside is gone");
    CAISSON_TRY_VOID(TakeFrames());
  }
  if (waits[3].revents != 0) PassOutput(OutputStream::kStdout, output_);
  if (waits[4].revents != 0) PassOutput(OutputStream::kStderr, error_);
  if (waits[5].revents != 0) PassInput();
  if (waits[0].revents != 0) return TakeAnswer();
  return {};
}

Status NestedCommand::TakeAnswer() {
  CAISSON_TRY(const launcher::Frame frame, launcher::Receive(supervisor_));
  if (frame.kind == launcher::Kind::kError) return launcher::DecodeError(frame.body());
  if (frame.kind == launcher::Kind::kViolation) {
    channel_.Send(Kind::kViolation, frame.body());  // the same encoding
    return {};
  }
  if (frame.kind != launcher::Kind::kOutcome) return Error::Invalid("the supervisor sent an answer to something else");
  CAISSON_TRY(outcome_, launcher::DecodeOutcome(frame.body()));
  return {};
}

Status NestedCommand::TakeFrames() {
  for (;;) {
    CAISSON_TRY(const std::optional<Frame> frame, channel_.Next());
    if (!frame) return {};
    OnFrame(*frame);
  }
}

void NestedCommand::OnFrame(const Frame& frame) {
  switch (frame.kind) {
    case Kind::kInput:
      if (!input_ended_) pending_input_ += frame.body;
      return PassInput();
    case Kind::kInputEnd:
      input_ended_ = true;
      return PassInput();
    case Kind::kSignal:
      if (const Result<int64_t> signal = DecodeNumber(frame.body); signal && *signal > 0 && *signal < NSIG)
        launcher::SendSignal(supervisor_, {static_cast<int>(*signal)});
      return;
    case Kind::kResize:
      if (const Result<Resize> size = DecodeResize(frame.body); size && execute_.terminal) {
        const struct winsize window { size->rows, size->columns, 0, 0 };
        if (::ioctl(output_.get(), TIOCSWINSZ, &window) == 0) launcher::SendSignal(supervisor_, {SIGWINCH});
      }
      return;
    case Kind::kStop:
      if (const Result<int64_t> ending = DecodeNumber(frame.body); ending && !stop_) {
        stop_ = static_cast<Ending>(std::clamp<int64_t>(*ending, 0, static_cast<int64_t>(Ending::kLost)));
        launcher::SendSignal(supervisor_, {0});
      }
      return;
    default:
      return;
  }
}

void NestedCommand::PassInput() {
  UniqueFd& sink = execute_.terminal ? output_ : input_;
  while (sink && !pending_input_.empty()) {
    const ssize_t size = ::write(sink.get(), pending_input_.data(), pending_input_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) pending_input_.clear();  // the command reads no more
    if (size > 0) pending_input_.erase(0, static_cast<size_t>(size));
  }
  if (!sink) pending_input_.clear();
  if (input_ended_ && pending_input_.empty()) input_.Reset();
}

void NestedCommand::PassOutput(OutputStream stream, UniqueFd& source) {
  char chunk[kPieceBytes / 2];
  const ssize_t size = ::read(source.get(), chunk, sizeof(chunk));
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return source.Reset();
  channel_.Send(Kind::kOutput, Encode(Output{stream, {chunk, static_cast<size_t>(size)}}));
}

// The supervisor has written everything before it sent the outcome, and closes the streams after that.
void NestedCommand::Drain() {
  const int64_t until = MonotonicNanos() / 1'000'000 + kDrainMs;
  while (output_ || error_) {
    const int64_t left = until - MonotonicNanos() / 1'000'000;
    struct pollfd waits[] = {{output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
    if (left <= 0 || (::poll(waits, 2, static_cast<int>(left)) <= 0 && errno != EINTR)) return;
    if (waits[0].revents != 0) PassOutput(OutputStream::kStdout, output_);
    if (waits[1].revents != 0) PassOutput(OutputStream::kStderr, error_);
  }
}

class Nested {
 public:
  Nested(Channel& channel, UniqueFd supervisor) : channel_(channel), supervisor_(std::move(supervisor)) {}

  Status Run() {
    channel_.Send(Kind::kHello, EncodeNumber(kProtocolVersion));
    CAISSON_TRY(const sandbox::Spec spec, TakePlan());
    CAISSON_TRY(const launcher::Encoded start, launcher::EncodeStart(spec));
    CAISSON_TRY(const launcher::Frame answer, Ask(launcher::Kind::kStart, start, launcher::Kind::kReady));
    Ready ready;
    CAISSON_TRY(ready.isolation, launcher::DecodeIsolation(answer.body()));
    ready.landlock_abi = ready.isolation->landlock_abi;
    ready.filter = ready.isolation->walls.filter;
    ready.no_new_privileges = ready.isolation->walls.no_new_privileges;
    ready.capabilities = ready.isolation->walls.capabilities;
    ready.serves_names = true;
    channel_.Send(Kind::kReady, Encode(ready));
    for (;;) {
      CAISSON_TRY(const Frame frame, channel_.Await());
      CAISSON_TRY_VOID(Answer(frame));
    }
  }

 private:
  Result<sandbox::Spec> TakePlan();
  Result<launcher::Frame> Ask(launcher::Kind kind, const launcher::Encoded& body, launcher::Kind answer);
  Status Answer(const Frame& frame);

  Channel& channel_;
  const UniqueFd supervisor_;
};

Result<sandbox::Spec> Nested::TakePlan() {
  CAISSON_TRY(const Frame first, channel_.Await());
  if (first.kind != Kind::kPlan) return Error::Invalid("plan: expected first");
  CAISSON_TRY(Plan plan, DecodePlan(first.body));
  sandbox::Spec spec = std::move(plan.spec);
  for (size_t i = 0; i < plan.mounts.size(); ++i) {
    sandbox::Mount mount;
    mount.source_path = kShownMounts + std::to_string(i);
    CAISSON_TRY(mount.source, linux_sys::Open(mount.source_path, O_PATH | O_NOFOLLOW));
    mount.target = plan.mounts[i].target;
    mount.access = plan.mounts[i].access;
    if (mount.target == "/workspace")
      spec.workspace = std::move(mount);
    else
      spec.mounts.push_back(std::move(mount));
  }
  for (;;) {
    CAISSON_TRY(const Frame frame, channel_.Await());
    if (frame.kind == Kind::kBegin) break;
    if (frame.kind != Kind::kFile) return Error::Invalid("file: expected");
    CAISSON_TRY(FilePiece piece, DecodeFilePiece(frame.body));
    std::vector<sandbox::WorkspaceFile>& files = spec.workspace_files;
    if (!piece.continues) {
      files.push_back({std::move(piece.path), std::move(piece.bytes), piece.mode, piece.kind});
    } else if (files.empty() || files.back().path != piece.path) {
      return Error::Invalid("file: continues another");
    } else {
      files.back().bytes += piece.bytes;
    }
  }
  spec.limits.output_bytes += kOutputSlack;
  return spec;
}

Result<launcher::Frame> Nested::Ask(launcher::Kind kind, const launcher::Encoded& body, launcher::Kind answer) {
  CAISSON_TRY_VOID(launcher::Send(supervisor_.get(), kind, body, true));
  CAISSON_TRY(launcher::Frame frame, launcher::Receive(supervisor_.get()));
  if (frame.kind == launcher::Kind::kError) return launcher::DecodeError(frame.body());
  if (frame.kind != answer) return Error::Invalid("the supervisor sent an answer to something else");
  return frame;
}

Status Nested::Answer(const Frame& frame) {
  switch (frame.kind) {
    case Kind::kExecute: {
      CAISSON_TRY(const Execute execute, DecodeExecute(frame.body));
      CAISSON_TRY(const Outcome outcome, NestedCommand(channel_, supervisor_.get(), execute).Run());
      channel_.Send(Kind::kOutcome, Encode(outcome));
      return {};
    }
    case Kind::kCollect: {
      CAISSON_TRY(const std::vector<std::string> globs, DecodeGlobs(frame.body));
      CAISSON_TRY(const launcher::Encoded message, launcher::Encode(launcher::CollectMessage{globs}));
      CAISSON_TRY(const launcher::Frame answer, Ask(launcher::Kind::kCollect, message, launcher::Kind::kCollected));
      channel_.Send(Kind::kCollected, answer.body());  // the same encoding
      return {};
    }
    case Kind::kInput:  // for a command that has ended meanwhile
    case Kind::kInputEnd:
    case Kind::kSignal:
    case Kind::kResize:
    case Kind::kStop:
      return {};
    default:
      return Error::Invalid("frame: not one that a runtime sends now");
  }
}

}  // namespace

Error ServeNested(Channel& channel, UniqueFd supervisor) {
  return Nested(channel, std::move(supervisor)).Run().error();
}

}  // namespace caisson::agent
