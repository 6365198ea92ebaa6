#include "launcher/server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/clock.h"
#include "launcher/channel.h"
#include "launcher/supervisor.h"
#include "launcher/zygote.h"
#include "linux/event_loop.h"

namespace caisson::launcher {

namespace {

constexpr size_t kMaxConnections = 256;
// Tags of the event loop. The tag of a connection or a member is its descriptor plus one of the two last values.
constexpr uint32_t kSignals = 0, kListener = 1, kFirstConnection = 2, kFirstMember = 1U << 31;

Result<struct sockaddr_un> Address(const std::string& path) {
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Error::Invalid("--socket " + path + ": a socket's path has 1 to " +
                          std::to_string(sizeof(address.sun_path) - 1) + " bytes");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Removes a socket that a killed launcher left behind. A socket that still accepts connections belongs to a running
// launcher and is kept.
Status RemoveStale(const std::string& path, const struct sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) return Error::Invalid("--socket " + path + ": exists and is not a socket");
  UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address)) == 0)
    return Error::Invalid("--socket " + path + ": another launcher listens there");
  if (errno != ECONNREFUSED) return Error::System(errno, "--socket " + path);
  if (::unlink(path.c_str()) != 0) return Error::System(errno, "remove " + path);
  return {};
}

Result<UniqueFd> Listen(const std::string& path, std::optional<uid_t> allowed_uid) {
  CAISSON_TRY(const struct sockaddr_un address, Address(path));
  CAISSON_TRY_VOID(RemoveStale(path, address));
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return Error::System(errno, "make a socket");
  // Sets the mode through the umask: a chmod after bind would leave a moment in which other users could connect.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(listener.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::umask(before);
  if (bound != 0) return Error::System(error, "listen at " + path);
  if (allowed_uid && ::lchown(path.c_str(), *allowed_uid, static_cast<gid_t>(-1)) != 0)
    return Error::System(errno, "give " + path + " to the allowed user");
  if (::listen(listener.get(), 128) != 0) return Error::System(errno, "listen at " + path);
  return listener;
}

Status VouchForSenders(int socket) {
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0)
    return Error::System(errno, "ask the kernel who sends");
  return {};
}

class Server {
 public:
  explicit Server(ServerOptions options)
      : options_(std::move(options)),
        pool_(options_.pool, loop_, kFirstMember, ForkMember),
        zygote_(options_.python_modules.value_or(""), OwnDirectory()),
        zygote_pool_(ZygotePool(options_), loop_, kFirstMember,
                     [this](UniqueFd control_socket) { return zygote_.Fork(std::move(control_socket)); }) {}

  Status Run() {
    CAISSON_TRY_VOID(Prepare());
    while (!ended_) {
      for (const auto& event : loop_.Wait(static_cast<int>(Turn()))) Dispatch(event.data.u32);
    }
    EndChildren();
    if (!options_.socket_path.empty()) ::unlink(options_.socket_path.c_str());
    return {};
  }

 private:
  // Returns after how many milliseconds to call it again; -1: only after an event.
  int64_t Turn() {
    int64_t pause = pool_.Turn(NowMs());
    if (!options_.python_modules) return pause;
    for (const int64_t other : {zygote_.Turn(NowMs()), zygote_pool_.Turn(NowMs())}) {
      if (other >= 0 && (pause < 0 || other < pause)) pause = other;
    }
    return pause;
  }

  // on_demand is worthwhile here: forking the interpreter takes a quarter of the time of starting one.
  static Pool::Options ZygotePool(const ServerOptions& options) {
    Pool::Options pool = options.python_modules ? options.pool : Pool::Options{};
    pool.on_demand = true;
    return pool;
  }

  static std::string OwnDirectory() {
    char path[4096];
    const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
    const std::string self(path, static_cast<size_t>(size < 0 ? 0 : size));
    return self.substr(0, self.rfind('/'));
  }

  static bool ForkMember(UniqueFd control_socket) {
    const pid_t launcher = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return pid > 0;
    ServeParked(ForgetLauncher(launcher, std::move(control_socket), "caisson-parked"), nullptr);
    ::_exit(0);
  }

  Status Prepare() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, signal);
    ::sigprocmask(SIG_SETMASK, &signals, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return Error::System(errno, "make a signalfd");
    loop_.Watch(signals_.get(), EPOLLIN, kSignals);
    // This process executes at most the interpreter, and no executed program may gain privileges.
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::System(errno, "set no_new_privs");
    if (options_.control) {
      CAISSON_TRY_VOID(VouchForSenders(options_.control.get()));
      Adopt(std::move(options_.control));
      return {};
    }
    CAISSON_TRY(listener_, Listen(options_.socket_path, options_.allowed_uid));
    CAISSON_TRY_VOID(VouchForSenders(listener_.get()));  // accepted connections inherit the option
    loop_.Watch(listener_.get(), EPOLLIN, kListener);
    return {};
  }

  void Dispatch(uint32_t tag) {
    if (tag == kSignals) return OnSignals();
    if (tag == kListener) return OnListener();
    if (tag >= kFirstMember) {
      const int control_socket = static_cast<int>(tag - kFirstMember);
      (pool_.has(control_socket) ? pool_ : zygote_pool_).OnReadable(control_socket, NowMs());
      return NoteBegun();
    }
    OnConnection(static_cast<int>(tag - kFirstConnection));
  }

  void OnSignals() {
    struct signalfd_siginfo info {};
    while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) ended_ = true;
    }
    NoteBegun();  // each run reports its process number before it can end
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (zygote_.OnEnded(pid, NowMs()) || runs_.erase(pid) == 0) continue;  // pools notice it themselves
      if (WIFSIGNALED(status))
        std::fprintf(stderr, "caisson-launcher: supervisor %d was ended by signal %d\n", pid, WTERMSIG(status));
    }
  }

  void NoteBegun() {
    for (const pid_t pid : zygote_pool_.TakeBegun(NowMs())) runs_.insert(pid);
  }

  bool IsAllowed(uid_t uid) const {
    // A process that was given the inherited descriptor may use it.
    if (!listener_) return true;
    return uid == 0 || uid == ::geteuid() || (options_.allowed_uid && uid == *options_.allowed_uid);
  }

  void Adopt(UniqueFd connection) {
    const int fd = connection.get();
    loop_.Watch(fd, EPOLLIN, kFirstConnection + static_cast<uint32_t>(fd));
    connections_.emplace(fd, std::move(connection));
  }

  void OnListener() {
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection || connections_.size() >= kMaxConnections) return;
    struct ucred peer {};
    socklen_t size = sizeof(peer);
    if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || !IsAllowed(peer.uid)) return;
    Adopt(std::move(connection));
  }

  void OnConnection(int fd) {
    const auto connection = connections_.find(fd);
    if (connection == connections_.end()) return;
    Result<RunRequest> run_request = ReceiveRunRequest(fd);
    if (!run_request) {
      // Drops an invalid request without an answer: it contains no connection to answer on.
      if (run_request.error().kind != ErrorKind::kSystem || run_request.error().errno_value == EAGAIN) return;
      connections_.erase(connection);
      if (!listener_) ended_ = true;
      return;
    }
    if (run_request->is_status) return Tell(run_request->run.get());
    if (const Status started = StartRun(*run_request); !started)
      (void)Send(run_request->run.get(), Kind::kError, Encode(started.error()), false);
  }

  void Tell(int asker) const {
    StatusMessage status;
    for (const auto& [name, pool] : {std::pair{"parked", &pool_}, std::pair{"zygote", &zygote_pool_}}) {
      const Pool::Counts counts = pool->counts();
      status.pools.push_back({name, counts.ready, counts.preparing, counts.taken, counts.missed, counts.died});
    }
    status.interpreters_died = zygote_.died();
    if (const Result<Encoded> encoded = Encode(status)) (void)Send(asker, Kind::kStatus, *encoded, false);
  }

  Status StartRun(RunRequest& run_request) {
    if (run_request.sender.pid <= 0 || !IsAllowed(run_request.sender.uid))
      return Error{ErrorKind::kSystem, EACCES,
                   "the launcher does not serve user " + std::to_string(run_request.sender.uid)};
    if (const size_t runs = runs_.size() + zygote_pool_.coming(); runs >= options_.max_runs) {
      return Error{ErrorKind::kSystem, EAGAIN,
                   "the launcher has " + std::to_string(runs) +
                       " runs, as many as it may; try again, or start it with a higher --max-runs"};
    }
    if (const pid_t parked = HandOver(run_request); parked != Pool::kNobody) {
      if (parked != Pool::kComing) runs_.insert(parked);
      return {};
    }
    const pid_t launcher = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return Error::System(errno, "fork a supervisor");
    if (pid == 0) {
      run_request.run = ForgetLauncher(launcher, std::move(run_request.run), "caisson-run");
      Supervise(std::move(run_request));
      ::_exit(0);
    }
    runs_.insert(pid);
    return {};
  }

  // Asks the warmest pool first. A pool that is not asked does not count the run as demand.
  pid_t HandOver(const RunRequest& run_request) {
    pid_t parked = Pool::kNobody;
    if (run_request.warmest >= sandbox::Start::kInterpreter) parked = zygote_pool_.HandOver(run_request, NowMs());
    const bool other = run_request.warmest == sandbox::Start::kParked || !options_.python_modules;
    if (parked == Pool::kNobody && run_request.warmest >= sandbox::Start::kParked && other)
      parked = pool_.HandOver(run_request, NowMs());
    return parked;
  }

  // The cleanup processes of runs remove their cgroups; parked supervisors remove their own.
  void EndChildren() {
    for (const pid_t pid : zygote_pool_.AwaitBegun(NowMs())) runs_.insert(pid);
    zygote_.End();
    pool_.Drain();
    zygote_pool_.Drain();
    for (const pid_t pid : runs_) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
    }
  }

  static int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

  ServerOptions options_;
  linux_sys::EventLoop loop_;
  Pool pool_;
  Zygote zygote_;
  Pool zygote_pool_;
  UniqueFd signals_, listener_;
  std::map<int, UniqueFd> connections_;
  std::set<pid_t> runs_;
  bool ended_ = false;
};

}  // namespace

Status Serve(ServerOptions options) { return Server(std::move(options)).Run(); }

}  // namespace caisson::launcher
