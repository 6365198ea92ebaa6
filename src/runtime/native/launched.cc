#include "runtime/native/launched.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/channel.h"
#include "launcher/messages.h"
#include "runtime/native/lower.h"

namespace caisson::runtime::native {

namespace {

using launcher::Encoded;
using launcher::Frame;
using launcher::Kind;

// How long a run's removal is waited for; it takes milliseconds.
constexpr int kRemovalMs = 10'000;

Error Lost(const Error& cause) {
  return {ErrorKind::kSystem, ECONNRESET,
          "the launcher was lost: its supervisor of this run ended without an answer (" + cause.message +
              "); the run may be tried again"};
}

// The next frame of that kind, or the error that was sent instead of it.
Result<Frame> ReceiveAnswer(int connection) {
  Result<Frame> frame = launcher::Receive(connection);
  if (!frame && frame.error().kind == ErrorKind::kSystem) return Lost(frame.error());
  if (frame && frame->kind == Kind::kError) return launcher::DecodeError(frame->body());
  return frame;
}

Error Unexpected() { return Error::Invalid("the launcher sent an answer to something else"); }

bool UsesInterpreter(const sandbox::Spec& spec) {
  return std::any_of(spec.commands.begin(), spec.commands.end(), [](const sandbox::Command& command) {
    const std::string& program = command.argv[0];
    return program.compare(program.rfind('/') + 1, 6, "python") == 0;
  });
}

class LaunchedRun : public Run {
 public:
  LaunchedRun(UniqueFd connection, IsolationReport report)
      : connection_(std::move(connection)), report_(std::move(report)) {}

  // Waits, as a run in this process does, until nothing is left of it.
  ~LaunchedRun() override {
    ::shutdown(connection_.get(), SHUT_WR);
    while (IsReadable(kRemovalMs) && launcher::Receive(connection_.get())) {
    }
  }

  const IsolationReport& isolation() const override { return report_; }

  Result<CommandOutcome> Execute(size_t command, const ExecuteOptions& options) override {
    launcher::ExecuteMessage message;
    message.command = static_cast<uint32_t>(command);
    message.timeout_ms = options.timeout_ms;
    message.timeout_name = options.timeout_name;
    message.last = options.last;
    message.signal_grace_ms = options.signal_grace_ms;
    message.wants_output = static_cast<bool>(options.on_output);
    message.wants_violations = static_cast<bool>(options.on_violation);
    CAISSON_TRY_VOID(Ask(Kind::kExecute, launcher::Encode(message)));
    for (int signal_fd = options.signal_fd;;) {
      struct pollfd waits[] = {{connection_.get(), POLLIN, 0}, {signal_fd, POLLIN, 0}};
      if (::poll(waits, 2, -1) < 0 && errno != EINTR) return Error::System(errno, "wait for the launcher");
      if (waits[1].revents != 0) signal_fd = ForwardSignal(signal_fd);
      if (waits[0].revents == 0) continue;
      CAISSON_TRY(const Frame frame, ReceiveAnswer(connection_.get()));
      if (frame.kind == Kind::kOutcome) return launcher::DecodeOutcome(frame.body());
      CAISSON_TRY_VOID(TakeNews(frame, options));
    }
  }

  Result<Collection> Collect(const std::vector<std::string>& globs) override {
    CAISSON_TRY_VOID(Ask(Kind::kCollect, launcher::Encode(launcher::CollectMessage{globs})));
    CAISSON_TRY(const Frame frame, ReceiveAnswer(connection_.get()));
    if (frame.kind != Kind::kCollected) return Unexpected();
    CAISSON_TRY(sandbox::Collected collected, launcher::DecodeCollected(frame.body()));
    Collection collection;
    for (sandbox::CollectedFile& file : collected.files)
      collection.files.push_back({std::move(file.path), std::move(file.bytes)});
    collection.skipped = std::move(collected.skipped);
    return collection;
  }

 private:
  bool IsReadable(int timeout_ms) const {
    struct pollfd wait {
      connection_.get(), POLLIN, 0
    };
    return ::poll(&wait, 1, timeout_ms) > 0;
  }

  Status Ask(Kind kind, const Result<Encoded>& body) {
    if (!body) return body.error();
    Status sent = launcher::Send(connection_.get(), kind, *body, true);
    if (!sent && sent.error().kind == ErrorKind::kSystem) return Lost(sent.error());
    return sent;
  }

  // Returns the descriptor to wait for next: none once it has ended.
  int ForwardSignal(int signal_fd) {
    struct signalfd_siginfo record {};
    const ssize_t size = ::read(signal_fd, &record, sizeof(record));
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return signal_fd;
    const bool ended = size != sizeof(record);
    // Asked twice, a supervisor does not wait for the grace.
    if (ended) record.ssi_signo = SIGTERM;
    for (int times = ended ? 2 : 1; times > 0; --times)
      ::send(connection_.get(), &record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
    return ended ? -1 : signal_fd;
  }

  static Status TakeNews(const Frame& frame, const ExecuteOptions& options) {
    if (frame.kind == Kind::kOutput && options.on_output) {
      CAISSON_TRY(const launcher::OutputMessage output, launcher::DecodeOutput(frame.body()));
      options.on_output(output.stream, output.bytes);
      return {};
    }
    if (frame.kind == Kind::kViolation && options.on_violation) {
      CAISSON_TRY(const Violation violation, launcher::DecodeViolation(frame.body()));
      options.on_violation(violation);
      return {};
    }
    return Unexpected();
  }

  UniqueFd connection_;
  IsolationReport report_;
};

class LaunchedRuntime : public Runtime {
 public:
  LaunchedRuntime(UniqueFd control, std::string socket_path)
      : control_(std::move(control)), socket_path_(std::move(socket_path)) {}

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    auto warmest = static_cast<sandbox::Start>(plan.profile.start);
    CAISSON_TRY(LoweredPlan lowered, Lower(std::move(plan)));
    launcher::StartMessage message;
    message.spec = std::move(lowered.spec);
    if (message.spec.stdio != sandbox::Stdio::kCapture) {
      for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        message.streams.emplace_back(::fcntl(stream, F_DUPFD_CLOEXEC, 3));
    }
    CAISSON_TRY(const Encoded start, launcher::Encode(message));
    // Where nothing is for an interpreter, a smaller process is forked faster.
    if (!UsesInterpreter(message.spec)) warmest = std::min(warmest, sandbox::Start::kParked);
    CAISSON_TRY(UniqueFd connection,
                Ask([warmest](int control, int end) { return launcher::SendOpen(control, end, warmest); }));
    Status sent = launcher::Send(connection.get(), Kind::kStart, start, true);
    // A launcher that refused has said why and closed; that is to be read before its silence is judged.
    if (!sent && sent.error().kind != ErrorKind::kSystem) return std::move(sent).error();
    CAISSON_TRY(const Frame frame, ReceiveAnswer(connection.get()));
    if (frame.kind != Kind::kReady) return Unexpected();
    CAISSON_TRY(const sandbox::Isolation applied, launcher::DecodeIsolation(frame.body()));
    return std::unique_ptr<Run>(
        std::make_unique<LaunchedRun>(std::move(connection), Describe(applied, lowered.given_up)));
  }

  Result<PoolsReport> Pools() override {
    CAISSON_TRY(UniqueFd connection,
                Ask([](int control, int end) { return launcher::SendStatusRequest(control, end); }));
    CAISSON_TRY(const Frame frame, ReceiveAnswer(connection.get()));
    if (frame.kind != Kind::kStatus) return Unexpected();
    CAISSON_TRY(const launcher::StatusMessage status, launcher::DecodeStatus(frame.body()));
    PoolsReport report;
    for (const auto& pool : status.pools)
      report.pools.push_back({pool.name, pool.ready, pool.preparing, pool.taken, pool.missed, pool.died});
    report.interpreters_died = status.interpreters_died;
    return report;
  }

 private:
  // Our end of a new connection, the other being on its way to the launcher by `say`.
  template <typename Say>
  Result<UniqueFd> Ask(const Say& say) const {
    UniqueFd connected;
    if (!control_) {
      CAISSON_TRY(connected, Connect());
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      return Error::System(errno, "make a connection for the run");
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    const Status sent = say(control_ ? control_.get() : connected.get(), theirs.get());
    if (!sent) return Lost(sent.error());
    return ours;
  }

  Result<UniqueFd> Connect() const {
    const std::string name = "the launcher at " + socket_path_;
    struct sockaddr_un address {};
    address.sun_family = AF_UNIX;
    if (socket_path_.empty() || socket_path_.size() >= sizeof(address.sun_path))
      return Error::Invalid(name + ": not a path that a socket can have");
    std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) return Error::System(errno, "make a socket");
    if (::connect(socket.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) != 0) {
      Error error = Error::System(errno, name + " cannot be reached");
      if (error.errno_value == ENOENT || error.errno_value == ECONNREFUSED)
        error.message += "; start it: caisson-launcher --socket " + socket_path_;
      if (error.errno_value == EACCES) error.message += "; it must be yours, or started with --allow-uid";
      return error;
    }
    return socket;
  }

  const UniqueFd control_;
  const std::string socket_path_;
};

}  // namespace

std::unique_ptr<Runtime> MakeLaunchedRuntime(std::string socket_path) {
  return std::make_unique<LaunchedRuntime>(UniqueFd(), std::move(socket_path));
}

std::unique_ptr<Runtime> MakeLaunchedRuntime(UniqueFd control) {
  return std::make_unique<LaunchedRuntime>(std::move(control), "");
}

}  // namespace caisson::runtime::native
