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

#include "launcher/channel.h"
#include "launcher/ground.h"
#include "launcher/messages.h"
#include "sandbox/sandbox.h"

namespace caisson::launcher {

namespace {

// What is told of a running command and not yet taken by the client. Beyond it news is dropped, never kept back from
// the outcome, which repeats all that counts.
constexpr size_t kMaxBacklogBytes = size_t{64} << 20;

// Frames that must not be waited for: a client that does not read must not keep the supervisor from its clock.
class Outbox {
 public:
  explicit Outbox(int connection) : connection_(connection) {}

  void Post(Kind kind, const Result<Encoded>& body) {
    if (!body || bytes_ + body->bytes.size() > kMaxBacklogBytes) return;
    bytes_ += body->bytes.size();
    waiting_.push_back({kind, *body});
    Flush(false);
  }
  // With `wait` returns only when everything is sent or nobody is there to send to.
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

// SECURITY: what passes through is read and written by this process, which may be root, on behalf of a client who is
// not. For pipes, sockets, terminals and ordinary files the right was checked when the client opened them; some files
// of the kernel's own file systems look at who writes instead.
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

Status TakeStreams(std::vector<UniqueFd> streams) {
  for (size_t i = 0; i < streams.size(); ++i) {
    if (!MayPassThrough(streams[i].get()))
      return Error{
          ErrorKind::kSystem, EACCES,
          "start.streams[" + std::to_string(i) + "]: neither a pipe, a socket, a terminal nor an ordinary file"};
    if (::dup2(streams[i].get(), static_cast<int>(i)) < 0) return Error::System(errno, "take the client's streams");
  }
  return {};
}

class Supervisor {
 public:
  Supervisor(Opening opening, std::optional<sandbox::Berth> berth)
      : connection_(std::move(opening.run)), client_(opening.sender), berth_(std::move(berth)) {}

  void Serve() {
    Status status = Start();
    while (status) status = ServeOne();
    // A client that is gone hears nothing, and need not.
    (void)Send(connection_.get(), Kind::kError, Encode(status.error()), false);
    sandbox_.reset();  // before the connection: its end says that nothing is left
  }

 private:
  Status Start() {
    CAISSON_TRY(Frame frame, Receive(connection_.get()));
    if (frame.kind != Kind::kStart) return Error::Invalid("start: expected first");
    CAISSON_TRY(StartMessage message, DecodeStart(frame.body(), std::move(frame.fds)));
    frame = {};
    CAISSON_TRY_VOID(TakeStreams(std::move(message.streams)));
    // Root may have what it likes; everybody else has over his files the rights he has without us.
    if (client_.uid != 0) message.spec.mount_owner = sandbox::Owner{client_.uid, client_.gid};
    commands_ = message.spec.commands.size();
    CAISSON_TRY(sandbox::Berth berth, berth_ ? *std::exchange(berth_, std::nullopt) : sandbox::Berth::Prepare());
    CAISSON_TRY(sandbox_, sandbox::Sandbox::Create(std::move(message.spec), std::move(berth)));
    return Answer(Kind::kReady, Encode(sandbox_->isolation()));
  }

  Status ServeOne() {
    CAISSON_TRY(const Frame frame, Receive(connection_.get()));
    if (!frame.fds.empty()) return Error::Invalid("frame: descriptors where there are none");
    if (frame.kind == Kind::kExecute) {
      CAISSON_TRY(const ExecuteMessage message, DecodeExecute(frame.body()));
      return Execute(message);
    }
    if (frame.kind == Kind::kCollect) {
      CAISSON_TRY(const CollectMessage message, DecodeCollect(frame.body()));
      return Answer(Kind::kCollected, Encode(sandbox_->Collect(message.globs)));
    }
    return Error::Invalid("frame: not one that a client sends now");
  }

  Status Execute(const ExecuteMessage& message) {
    if (message.command >= commands_) return Error::Invalid("execute.command: there is no such command");
    Outbox outbox(connection_.get());
    sandbox::RunOptions options;
    options.timeout_ms = message.timeout_ms;
    options.timeout_name = message.timeout_name;
    options.last = message.last;
    options.signal_fd = connection_.get();
    options.signal_grace_ms = message.signal_grace_ms;
    if (message.wants_violations)
      options.on_violation = [&](const Violation& violation) { outbox.Post(Kind::kViolation, Encode(violation)); };
    if (message.wants_output) {
      options.on_output = [&](OutputStream stream, std::string_view bytes) {
        outbox.Post(Kind::kOutput, Encode(OutputMessage{stream, std::string(bytes)}));
      };
    }
    options.on_turn = [&] { outbox.Flush(false); };
    Result<CommandOutcome> outcome = sandbox_->Run(message.command, options);
    outbox.Flush(true);
    if (outcome) return Answer(Kind::kOutcome, Encode(*outcome));
    // The command's failure and not the conversation's: files may still be asked for.
    return Send(connection_.get(), Kind::kError, Encode(outcome.error()), true);
  }

  Status Answer(Kind kind, const Result<Encoded>& body) {
    if (!body) return body.error();
    return Send(connection_.get(), kind, *body, true);
  }

  UniqueFd connection_;
  const struct ucred client_;
  std::optional<sandbox::Berth> berth_;  // until there is a sandbox in it
  size_t commands_ = 0;
  std::unique_ptr<sandbox::Sandbox> sandbox_;
};

}  // namespace

UniqueFd ForgetLauncher(pid_t launcher, UniqueFd kept, const char* name) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != launcher) ::_exit(1);
  ::prctl(PR_SET_NAME, name, 0, 0, 0);
  // SECURITY: the listener, other clients' connections and whatever else is open belong to the launcher. The standard
  // streams are nothing and the log.
  constexpr int kKept = 3;
  if (kept.get() != kKept && ::dup3(kept.get(), kKept, O_CLOEXEC) < 0) ::_exit(1);
  (void)kept.Release();
  if (::close_range(kKept + 1, ~0U, 0) != 0) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  return UniqueFd(kKept);
}

void Supervise(Opening opening, std::optional<sandbox::Berth> berth) {
  Supervisor(std::move(opening), std::move(berth)).Serve();
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
  // SECURITY: where the workload is forked from us and executes nothing, it can read what is left in freed memory.
  ::explicit_bzero(frame->packet.data(), frame->packet.size());
  if (!taken) return errno = EPROTO, false;
  spec = *std::move(taken);
  return true;
}

}  // namespace

void ServeParked(UniqueFd leash, const sandbox::Interpreter* interpreter) {
  auto expected = std::make_unique<sandbox::Expectation>();
  expected->ground = UsualGround();
  expected->carrier = {SendSpec, TakeSpec};
  expected->interpreter = interpreter;
  Result<sandbox::Berth> berth = sandbox::Berth::PrepareAhead(std::move(expected));
  if (!berth) {
    std::fprintf(stderr, "caisson-launcher: cannot park: %s\n", berth.error().message.c_str());
    return;
  }
  const pid_t self = ::getpid();
  if (::send(leash.get(), &self, sizeof(self), MSG_NOSIGNAL) != sizeof(self)) return;
  Result<Opening> opening = TakePassedOn(leash.get());
  if (!opening) return;  // let go, unused
  leash.Reset();
  ::prctl(PR_SET_NAME, "caisson-run", 0, 0, 0);
  Supervise(*std::move(opening), *std::move(berth));
}

}  // namespace caisson::launcher
