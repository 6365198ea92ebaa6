#include "launcher/supervisor.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "launcher/baseline_spec.h"
#include "launcher/channel.h"
#include "launcher/messages.h"
#include "sandbox/sandbox.h"

namespace caisson::launcher {

namespace {

// The most bytes of output and violations that wait for the client to read them while a command runs. Further messages
// are dropped, but the outcome repeats everything that matters, so nothing is missing there.
constexpr size_t kMaxBacklogBytes = size_t{64} << 20;

// Queues frames that the supervisor must not wait for: a client that does not read must not delay the supervisor's
// timers.
class Outbox {
 public:
  explicit Outbox(int connection) : connection_(connection) {}

  void Post(Kind kind, const Result<Encoded>& body) {
    if (!body || bytes_ + body->bytes.size() > kMaxBacklogBytes) return;
    bytes_ += body->bytes.size();
    waiting_.push_back({kind, *body});
    Flush(false);
  }
  // With `wait`, returns only when everything is sent or the client is gone.
  void Flush(bool wait) {
    while (!waiting_.empty()) {
      const auto& [kind, body] = waiting_.front();
      const Status sent = Send(connection_, kind, body, wait);
      if (!sent && sent.error().errno_value == EAGAIN) return;
      bytes_ -= body.bytes.size();
      waiting_.pop_front();
    }
  }

 private:
  int connection_;
  size_t bytes_ = 0;
  std::deque<std::pair<Kind, Encoded>> waiting_;
};

// SECURITY: this process, which may be root, reads and writes a command's streams on behalf of a client that is not
// root. For pipes, sockets, terminals and ordinary files the kernel checked the client's permission when the client
// opened them; some files of the kernel's own file systems check the credentials of the writing process instead.
bool MayPassThrough(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)) return true;
  if (S_ISCHR(info.st_mode)) {
    constexpr unsigned kMemoryDevices = 1, kTerminals = 4, kOtherTerminals = 5;  // null; tty1; tty, console
    constexpr unsigned kFirstPseudoTerminals = 136, kLastPseudoTerminals = 143;
    const unsigned driver = major(info.st_rdev);
    return driver == kMemoryDevices || driver == kTerminals || driver == kOtherTerminals ||
           (driver >= kFirstPseudoTerminals && driver <= kLastPseudoTerminals);
  }
  struct statfs system {};
  if (!S_ISREG(info.st_mode) || ::fstatfs(fd, &system) != 0) return false;
  constexpr std::array<long, 11> kKernelsOwn = {
      PROC_SUPER_MAGIC, SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
      SECURITYFS_MAGIC, SELINUX_MAGIC, BPF_FS_MAGIC,       NSFS_MAGIC,          EFIVARFS_MAGIC};
  return std::find(kKernelsOwn.begin(), kKernelsOwn.end(), static_cast<long>(system.f_type)) == kKernelsOwn.end();
}

// A supervisor holds captured output in its own memory, which no cgroup of the sandbox limits.
constexpr int64_t kMaxCapturedBytes = int64_t{1} << 30;

Status CheckStreams(const ExecuteMessage& message) {
  for (const auto& [name, stream] : {std::pair{"stdin", &message.stdin_fd}, std::pair{"stdout", &message.stdout_fd},
                                     std::pair{"stderr", &message.stderr_fd}}) {
    if (!*stream || MayPassThrough((*stream)->get())) continue;
    return Error{ErrorKind::kSystem, EACCES,
                 std::string("execute.") + name + ": neither a pipe, a socket, a terminal nor an ordinary file"};
  }
  return {};
}

// Takes the client's requests to stop or signal the running command.
class ClientStop : public StopToken {
 public:
  explicit ClientStop(int connection) : connection_(connection) {}
  int fd() const override { return connection_; }
  std::optional<StopRequest> Take() const override { return TakeSignal(connection_); }

 private:
  int connection_;
};

class Supervisor {
 public:
  Supervisor(RunRequest run_request, std::optional<sandbox::HostResources> resources)
      : connection_(std::move(run_request.run)), client_(run_request.sender), resources_(std::move(resources)) {}

  void Serve() {
    Status status = Start();
    while (status) status = ServeOne();
    // A client that is gone does not receive the error and does not need it.
    (void)Send(connection_.get(), Kind::kError, Encode(status.error()), false);
    sandbox_.reset();  // before the connection closes, which tells the client that nothing is left
  }

 private:
  Status Start() {
    CAISSON_TRY(Frame frame, Receive(connection_.get()));
    if (frame.kind != Kind::kStart) return Error::Invalid("start: expected first");
    CAISSON_TRY(sandbox::Spec spec, DecodeStart(frame.body(), std::move(frame.fds)));
    frame = {};
    // A root client keeps all rights to its mounts. Any other client gets exactly the rights to its files that it has
    // without the launcher.
    if (client_.uid != 0) spec.mount_owner = sandbox::Owner{client_.uid, client_.gid};
    CAISSON_TRY(sandbox::HostResources resources,
                resources_ ? *std::exchange(resources_, std::nullopt) : sandbox::HostResources::Prepare());
    CAISSON_TRY(sandbox_, sandbox::Sandbox::Create(std::move(spec), std::move(resources)));
    return Answer(Kind::kReady, Encode(sandbox_->isolation()));
  }

  Status ServeOne() {
    CAISSON_TRY(Frame frame, Receive(connection_.get()));
    if (frame.kind == Kind::kExecute) {
      CAISSON_TRY(const ExecuteMessage message, DecodeExecute(frame.body(), std::move(frame.fds)));
      frame = {};
      return Execute(message);
    }
    if (!frame.fds.empty()) return Error::Invalid("frame: descriptors where there are none");
    if (frame.kind == Kind::kCollect) {
      CAISSON_TRY(const CollectMessage message, DecodeCollect(frame.body()));
      return Answer(Kind::kCollected, Encode(sandbox_->Collect(message.globs)));
    }
    return Error::Invalid("frame: not one that a client sends now");
  }

  Status Execute(const ExecuteMessage& message) {
    CAISSON_TRY_VOID(CheckStreams(message));
    if (message.io == CommandIo::Kind::kCapture && sandbox_->spec().limits.output_bytes > kMaxCapturedBytes)
      return Error::Invalid("execute.io: a launcher captures at most " + std::to_string(kMaxCapturedBytes));
    Outbox outbox(connection_.get());
    const ClientStop stop(connection_.get());
    sandbox::RunOptions options;
    options.timeout_ms = message.timeout_ms;
    options.timeout_name = message.timeout_name;
    options.last = message.last;
    options.stop = &stop;
    options.signal_grace_ms = message.signal_grace_ms;
    if (message.wants_violations)
      options.on_violation = [&](const Violation& violation) { outbox.Post(Kind::kViolation, Encode(violation)); };
    CommandIo io;
    io.kind = message.io;
    io.input = message.input;
    const auto number = [](const std::optional<UniqueFd>& fd) { return fd ? fd->get() : -1; };
    io.stdin_fd = number(message.stdin_fd);
    io.stdout_fd = number(message.stdout_fd);
    io.stderr_fd = number(message.stderr_fd);
    if (message.wants_output) {
      io.on_output = [&](OutputStream stream, std::string_view bytes) {
        outbox.Post(Kind::kOutput, Encode(OutputMessage{stream, std::string(bytes)}));
      };
    }
    options.on_turn = [&] { outbox.Flush(false); };
    Result<CommandOutcome> outcome = sandbox_->Run(message.command, io, options);
    outbox.Flush(true);
    if (outcome) return Answer(Kind::kOutcome, Encode(*outcome));
    // The command failed but the connection is intact: the client may still collect files.
    return Send(connection_.get(), Kind::kError, Encode(outcome.error()), true);
  }

  Status Answer(Kind kind, const Result<Encoded>& body) {
    if (!body) return body.error();
    return Send(connection_.get(), kind, *body, true);
  }

  UniqueFd connection_;
  const struct ucred client_;
  std::optional<sandbox::HostResources> resources_;  // until the sandbox takes them
  std::unique_ptr<sandbox::Sandbox> sandbox_;
};

}  // namespace

UniqueFd ForgetLauncher(pid_t launcher, UniqueFd kept, const char* name) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != launcher) ::_exit(1);
  ::prctl(PR_SET_NAME, name, 0, 0, 0);
  // SECURITY: the listener, other clients' connections and all other open descriptors belong to the launcher and are
  // closed. The standard streams stay: they are /dev/null and the log.
  constexpr int kKept = 3;
  if (kept.get() != kKept && ::dup3(kept.get(), kKept, O_CLOEXEC) < 0) ::_exit(1);
  (void)kept.Release();
  if (::close_range(kKept + 1, ~0U, 0) != 0) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  return UniqueFd(kKept);
}

void Supervise(RunRequest run_request, std::optional<sandbox::HostResources> resources) {
  Supervisor(std::move(run_request), std::move(resources)).Serve();
}

namespace {

Status SendSpec(int control_fd, const sandbox::Spec& spec) {
  CAISSON_TRY(const Encoded encoded, Encode(spec));
  return Send(control_fd, Kind::kStart, encoded, true);
}

// Runs: PID 1.
bool TakeSpec(int control_fd, sandbox::Spec& spec) {
  Result<Frame> frame = Receive(control_fd);
  if (!frame || frame->kind != Kind::kStart) return errno = ECONNABORTED, false;
  Result<sandbox::Spec> taken = DecodeSpec(frame->body(), std::move(frame->fds));
  // SECURITY: a workload that is forked from this process and executes no program can read what is left in freed
  // memory.
  ::explicit_bzero(frame->packet.data(), frame->packet.size());
  if (!taken) return errno = EPROTO, false;
  spec = *std::move(taken);
  return true;
}

}  // namespace

void ServeParked(UniqueFd control_socket, const sandbox::WarmInterpreter* interpreter) {
  auto expected = std::make_unique<sandbox::ParkedSetup>();
  expected->baseline = BaselineSpec();
  expected->transfer = {SendSpec, TakeSpec};
  expected->interpreter = interpreter;
  Result<sandbox::HostResources> resources = sandbox::HostResources::PrepareAhead(std::move(expected));
  if (!resources) {
    std::fprintf(stderr, "caisson-launcher: cannot park: %s\n", resources.error().message.c_str());
    return;
  }
  const pid_t self = ::getpid();
  if (::send(control_socket.get(), &self, sizeof(self), MSG_NOSIGNAL) != sizeof(self)) return;
  Result<RunRequest> run_request = TakePassedOn(control_socket.get());
  if (!run_request) return;  // dismissed without a run
  control_socket.Reset();
  ::prctl(PR_SET_NAME, "caisson-run", 0, 0, 0);
  Supervise(*std::move(run_request), *std::move(resources));
}

}  // namespace caisson::launcher
