#include "runtime/native/launched.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "launcher/channel.h"
#include "launcher/messages.h"
#include "runtime/native/description.h"
#include "runtime/native/lower.h"

namespace caisson::runtime::native {

namespace {

using launcher::Encoded;
using launcher::Frame;
using launcher::Kind;

// The longest wait for the removal of a run, which takes milliseconds.
constexpr int kRemovalMs = 10'000;

Error Lost(const Error& cause) {
  return {ErrorKind::kSystem, ECONNRESET,
          "the launcher was lost: its supervisor of this run ended without an answer (" + cause.message +
              "); the run may be tried again"};
}

bool IsLost(const Error& error) { return error.kind == ErrorKind::kSystem && error.errno_value == ECONNRESET; }

CommandOutcome LostOutcome() {
  CommandOutcome outcome;
  outcome.ending = Ending::kLost;
  return outcome;
}

// The next frame of that kind, or the error that was sent instead of it.
Result<Frame> ReceiveAnswer(int connection) {
  Result<Frame> frame = launcher::Receive(connection);
  if (!frame && frame.error().kind == ErrorKind::kSystem) return Lost(frame.error());
  if (frame && frame->kind == Kind::kError) return launcher::DecodeError(frame->body());
  return frame;
}

Error Unexpected() { return Error::Invalid("the launcher sent an answer to something else"); }

bool UsesInterpreter(const policy::RunPlan& plan) {
  return std::any_of(plan.commands.begin(), plan.commands.end(), [](const policy::PlannedCommand& command) {
    const std::string& program = command.argv[0];
    return program.compare(program.rfind('/') + 1, 6, "python") == 0;
  });
}

std::optional<UniqueFd> CopyOf(int fd) {
  if (fd < 0) return std::nullopt;
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

class LaunchedRun : public Run {
 public:
  LaunchedRun(UniqueFd connection, IsolationReport report, Environment environment)
      : connection_(std::move(connection)), report_(std::move(report)), environment_(std::move(environment)) {}
  ~LaunchedRun() override { LaunchedRun::Close(); }

  const IsolationReport& isolation() const override { return report_; }

  Result<CommandOutcome> Execute(const Command& command, const CommandIo& io, const ExecuteOptions& options) override {
    launcher::ExecuteMessage message;
    message.command = Lower(command, environment_);
    message.io = io.kind;
    message.input = io.input;
    message.stdin_fd = CopyOf(io.stdin_fd);
    message.stdout_fd = CopyOf(io.stdout_fd);
    message.stderr_fd = CopyOf(io.stderr_fd);
    message.timeout_ms = options.timeout_ms;
    message.timeout_name = options.timeout_name;
    message.last = options.last;
    message.signal_grace_ms = options.signal_grace_ms;
    message.wants_output = static_cast<bool>(io.on_output);
    message.wants_violations = static_cast<bool>(options.on_violation);
    if (Status asked = Ask(Kind::kExecute, launcher::Encode(message)); !asked) {
      if (IsLost(asked.error())) return LostOutcome();
      return std::move(asked).error();
    }
    for (const StopToken* stop = options.stop;;) {
      struct pollfd waits[] = {{connection_.get(), POLLIN, 0}, {stop != nullptr ? stop->fd() : -1, POLLIN, 0}};
      if (::poll(waits, 2, -1) < 0 && errno != EINTR) return Error::System(errno, "wait for the launcher");
      if (waits[1].revents != 0) stop = Forward(stop);
      if (waits[0].revents == 0) continue;
      Result<Frame> answer = ReceiveAnswer(connection_.get());
      if (!answer && IsLost(answer.error())) return LostOutcome();
      CAISSON_TRY(const Frame frame, std::move(answer));
      if (frame.kind == Kind::kOutcome) return launcher::DecodeOutcome(frame.body());
      CAISSON_TRY_VOID(TakeNews(frame, io, options));
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

  // Waits, like a run in this process, until nothing of the run is left.
  void Close() override {
    if (!connection_) return;
    ::shutdown(connection_.get(), SHUT_WR);
    while (IsReadable(kRemovalMs) && launcher::Receive(connection_.get())) {
    }
    connection_.Reset();
  }

 private:
  bool IsReadable(int timeout_ms) const {
    struct pollfd wait {
      connection_.get(), POLLIN, 0
    };
    return ::poll(&wait, 1, timeout_ms) > 0;
  }

  Status Ask(Kind kind, const Result<Encoded>& body) {
    if (!connection_) return Error::Unsupported("the run is closed");
    if (!body) return body.error();
    Status sent = launcher::Send(connection_.get(), kind, *body, true);
    if (!sent && sent.error().kind == ErrorKind::kSystem) return Lost(sent.error());
    return sent;
  }

  // Returns the token to wait for next; nullptr once the supervisor was told to stop.
  const StopToken* Forward(const StopToken* stop) const {
    const std::optional<StopRequest> request = stop->Take();
    if (request) launcher::SendSignal(connection_.get(), *request);
    return request && request->signal == 0 ? nullptr : stop;
  }

  static Status TakeNews(const Frame& frame, const CommandIo& io, const ExecuteOptions& options) {
    if (frame.kind == Kind::kOutput && io.on_output) {
      CAISSON_TRY(const launcher::OutputMessage output, launcher::DecodeOutput(frame.body()));
      io.on_output(output.stream, output.bytes);
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
  Environment environment_;
};

class LaunchedRuntime : public Runtime {
 public:
  LaunchedRuntime(UniqueFd control, std::string socket_path)
      : control_(std::move(control)), socket_path_(std::move(socket_path)) {}

  policy::RuntimeDescription Describe() const override {
    policy::RuntimeDescription description = DescribeNative();
    description.abilities.erase(policy::Ability::kSessions);  // the supervisor of a session is a process of its own
    return description;
  }

  Result<std::unique_ptr<Run>> Start(policy::RunPlan plan) override {
    auto warmest = static_cast<sandbox::Start>(plan.profile.start);
    // If no command is for the interpreter, the smaller process is used, because it forks faster. Supervisors of the
    // interpreter cannot find the egress process, which is installed beside another program.
    if (!UsesInterpreter(plan) || plan.has_network()) warmest = std::min(warmest, sandbox::Start::kParked);
    // Parked sandboxes show the host's programs, and the warm interpreter is one of them.
    if (plan.image) warmest = sandbox::Start::kCold;
    plan.attended = false;  // a launcher passes no questions on
    CAISSON_TRY(LoweredPlan lowered, Lower(std::move(plan)));
    CAISSON_TRY(const Encoded start, launcher::EncodeStart(lowered.spec));
    CAISSON_TRY(UniqueFd connection,
                Ask([warmest](int control, int end) { return launcher::SendRunRequest(control, end, warmest); }));
    Status sent = launcher::Send(connection.get(), Kind::kStart, start, true);
    // A launcher that refused has sent its reason and closed; that reason must be read before the failed send is
    // judged.
    if (!sent && sent.error().kind != ErrorKind::kSystem) return std::move(sent).error();
    CAISSON_TRY(const Frame frame, ReceiveAnswer(connection.get()));
    if (frame.kind != Kind::kReady) return Unexpected();
    CAISSON_TRY(const sandbox::Isolation applied, launcher::DecodeIsolation(frame.body()));
    return std::unique_ptr<Run>(std::make_unique<LaunchedRun>(
        std::move(connection), native::Describe(applied, lowered.given_up), std::move(lowered.environment)));
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
  // Our end of a new connection; `say` sends the other end to the launcher.
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
