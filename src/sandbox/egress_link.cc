#include "sandbox/egress_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/utf8.h"
#include "linux/files.h"
#include "sandbox/mutation.h"

namespace caisson::sandbox {

namespace {

namespace control = egress::control;

#ifdef CAISSON_MUTATIONS
constexpr char kProgram[] = "caisson-egress-mutable";
#else
constexpr char kProgram[] = "caisson-egress";
#endif
constexpr int64_t kReadyMs = 10'000;
constexpr int64_t kReadMs = 5'000;  // how long it may leave a full socket unread
// How long connections that a command left open may go on delivering its data.
constexpr uint32_t kDeliverMs = 1'000;
constexpr int64_t kSettleMs = 10'000;
constexpr uint32_t kAskMarginMs = 5'000;  // the process waits a little longer than an asker
constexpr size_t kMaxListeners = 2048;
constexpr int kBacklog = 1024;

// The program lies beside this program, like the other helpers.
Result<std::string> FindProgram() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0 || size == sizeof(path)) return Error::System(size < 0 ? errno : ENAMETOOLONG, "read /proc/self/exe");
  const std::string_view self(path, static_cast<size_t>(size));
  return std::string(self.substr(0, self.rfind('/') + 1)) + kProgram;
}

struct SpawnSettings {
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// The control socket becomes the process's standard input; it has no other descriptor. It gets its own session, because
// signals that a terminal sends to the supervisor's process group are meant for the workload.
int Fill(SpawnSettings& settings, int socket) {
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  for (const int fault : {
           ::posix_spawn_file_actions_adddup2(&settings.files, socket, STDIN_FILENO),
           ::posix_spawn_file_actions_addopen(&settings.files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0),
           ::posix_spawn_file_actions_addopen(&settings.files, STDERR_FILENO, "/dev/null", O_WRONLY, 0),
           ::posix_spawn_file_actions_addclosefrom_np(&settings.files, STDERR_FILENO + 1),
           ::posix_spawnattr_setsigmask(&settings.attributes, &none),
           ::posix_spawnattr_setsigdefault(&settings.attributes, &all),
           ::posix_spawnattr_setflags(&settings.attributes,
                                      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID),
       }) {
    if (fault != 0) return fault;
  }
  return 0;
}

Error Ended() {
  return {ErrorKind::kSystem, ECHILD, std::string(kProgram) + " ended before the sandbox that it serves"};
}

}  // namespace

Result<std::unique_ptr<EgressLink>> EgressLink::Start(Network& network) {
  std::unique_ptr<EgressLink> link(new EgressLink(network));
  CAISSON_TRY_VOID(link->Spawn());
  CAISSON_TRY_VOID(link->SendRules());
  return link;
}

EgressLink::~EgressLink() {
  if (pid_ < 0) return;
  control_.Reset();
  ::kill(pid_, SIGKILL);  // not reaped yet, so the process number is still its own
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status EgressLink::Spawn() {
  CAISSON_TRY(std::string program, FindProgram());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::System(errno, "make a socket for the egress process");
  control_ = UniqueFd(ends[0]);
  const UniqueFd given(ends[1]);
  // Uses a number of at least 3, so that no standard stream overwrites the socket before it is moved.
  const UniqueFd theirs(::fcntl(given.get(), F_DUPFD_CLOEXEC, 3));
  if (!theirs) return Error::System(errno, "duplicate a descriptor");
  SpawnSettings settings;
  int fault = Fill(settings, theirs.get());
  char* argv[] = {program.data(), nullptr};
  char* environment[] = {nullptr, nullptr};  // SECURITY: our environment could name libraries to load
#ifdef CAISSON_MUTATIONS
  std::string mutation =
      std::string("CAISSON_MUTATE=") + (::getenv("CAISSON_MUTATE") ? ::getenv("CAISSON_MUTATE") : "");
  environment[0] = mutation.data();
#endif
  if (fault == 0)
    fault = ::posix_spawn(&pid_, program.c_str(), &settings.files, &settings.attributes, argv, environment);
  if (fault == 0) return {};
  pid_ = -1;
  if (fault == ENOENT || fault == EACCES) {
    return Error::Unsupported("network: " + program + ": " + std::strerror(fault) +
                              "; a sandbox with a network needs it: install it beside this program");
  }
  return Error::System(fault, "start " + program);
}

template <typename Message>
Status EgressLink::Send(const Message& message, const std::vector<int>& fds) {
  const std::string frame = control::Pack(message);
  Status sent = control::SendFrame(control_.get(), frame, fds, MSG_DONTWAIT);
  if (!sent && sent.error().errno_value == EAGAIN) {
    // SECURITY: a process that does not read must not hold up the supervisor and its clock.
    struct pollfd wait {
      control_.get(), POLLOUT, 0
    };
    ::poll(&wait, 1, static_cast<int>(kReadMs));
    sent = control::SendFrame(control_.get(), frame, fds, MSG_DONTWAIT);
  }
  return sent ? std::move(sent) : std::move(sent).error().In(kProgram);
}

Status EgressLink::SendRules() {
  control::Settings settings;
  settings.pool = network_.pool;
  settings.pool_bits = network_.pool_bits;
  settings.max_connections = network_.max_connections;
  settings.connections_per_second = network_.connections_per_second;
  settings.max_bytes = network_.max_bytes;
  settings.bytes_per_second = network_.bytes_per_second;
  CAISSON_TRY_VOID(Send(settings));
  for (const NetworkRule& rule : network_.rules) CAISSON_TRY_VOID(SendRule(rule));
  for (const std::string& range : network_.private_ranges) CAISSON_TRY_VOID(Send(control::Grant{range}));
  for (const NetworkHost& host : network_.hosts) CAISSON_TRY_VOID(Send(control::HostEntry{host.name, host.address}));
  return SendCredentials();
}

Status EgressLink::SendRule(const NetworkRule& rule) {
  control::Rule message;
  message.allow = rule.allow ? 1 : 0;
  message.text = rule.text;
  message.label = rule.label;
  return Send(message);
}

Status EgressLink::SendCredentials() {
  for (NetworkCredential& credential : network_.credentials) {
    control::Credential message;
    message.name = credential.name;
    message.host = credential.host;
    message.port = credential.port;
    message.path = credential.path;
    message.header = credential.header;
    message.value = credential.value;
    message.placeholder = credential.placeholder;
    message.methods = credential.methods;
    message.paths = credential.paths;
    message.git_read_only = credential.git_read_only ? 1 : 0;
    std::vector<int> fds = {credential.secret.get()};
    if (credential.ca) fds.push_back(credential.ca->get());
    CAISSON_TRY_VOID(Send(message, fds));
    credential.secret.Reset();
    credential.ca.reset();
  }
  if (network_.attended) CAISSON_TRY_VOID(Send(control::Attended{network_.ask_ms + kAskMarginMs}));
  if (network_.credentials.empty()) return {};
  return Send(control::MakeAuthority());
}

Result<std::string> EgressLink::ReadAuthority() {
  CAISSON_TRY(control::Frame frame, Receive(MonotonicNanos() + kReadyMs * 1'000'000));
  control::Fault fault;
  if (control::Unpack(frame.bytes, fault))
    return Error::Unsupported("network: " + std::string(kProgram) + ": " + EscapeForTerminal(fault.text));
  control::Authority authority;
  if (!control::Unpack(frame.bytes, authority) || frame.fds.size() != 1)
    return Error::System(EPROTO, std::string("make the certificates of ") + kProgram);
  constexpr int64_t kMostBytes = 65536;
  struct stat info {};
  if (::fstat(frame.fds[0].get(), &info) != 0 || info.st_size <= 0 || info.st_size > kMostBytes)
    return Error::System(EPROTO, std::string("read the certificates of ") + kProgram);
  return linux_sys::ReadAt(frame.fds[0].get(), 0, info.st_size);
}

Status EgressLink::Connect(InsideSockets sockets, UniqueFd dns, UniqueFd dns_listener) {
  sockets_ = std::move(sockets);
  CAISSON_TRY_VOID(sockets_.AddAddresses(network_));
  CAISSON_TRY_VOID(Send(control::DnsSockets(), {dns.get(), dns_listener.get()}));
  CAISSON_TRY_VOID(ShowHostPorts());
  for (PortForward& forward : network_.forwards)
    CAISSON_TRY_VOID(Forward(std::move(forward.listener), forward.port, forward.inside_port));
  dns_ = std::move(dns);
  return Begin();
}

Status EgressLink::ConnectForForwards(InsideSockets sockets) {
  sockets_ = std::move(sockets);
  // The process wants DNS sockets. These are never ready, because their other ends stay here and send nothing.
  UniqueFd theirs[2];
  for (size_t i = 0; i < 2; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, (i == 0 ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0, ends) != 0)
      return Error::System(errno, "make a socket for the egress process");
    theirs[i].Reset(ends[0]);
    silent_.emplace_back(ends[1]);
  }
  CAISSON_TRY_VOID(Send(control::DnsSockets(), {theirs[0].get(), theirs[1].get()}));
  return Begin();
}

Status EgressLink::Begin() {
  CAISSON_TRY_VOID(Send(control::Start()));
  CAISSON_TRY(const control::Frame frame, Receive(MonotonicNanos() + kReadyMs * 1'000'000));
  control::Ready ready;
  if (control::Unpack(frame.bytes, ready)) return {};
  control::Fault fault;
  if (control::Unpack(frame.bytes, fault))
    return Error::Unsupported("network: " + std::string(kProgram) + ": " + EscapeForTerminal(fault.text));
  return Error::System(ETIMEDOUT, std::string("start ") + kProgram);
}

Status EgressLink::ShowHostPorts() {
  for (const uint16_t port : network_.host_ports) {
    UniqueFd listener;
    if (const int error = ListenAt(INADDR_LOOPBACK, port, listener); error != 0)
      return Error::System(error, "network: listen inside for the host's port " + std::to_string(port));
    CAISSON_TRY_VOID(Send(control::HostPort{port}, {listener.get()}));
  }
  return {};
}

Status EgressLink::Forward(UniqueFd listener, uint16_t port, uint16_t inside_port) {
  // The process calls nothing but accept on it; anything else than a listener would only confuse its record.
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (::getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0)
    return Error::Invalid("forward: the descriptor is no listening socket");
  has_forwards_ = true;
  return Send(control::Forward{port, inside_port}, {listener.get()});
}

Status EgressLink::Answer(uint32_t id, control::Verdict::Scope scope) {
  control::Verdict verdict;
  verdict.id = id;
  verdict.scope = scope;
  return Send(verdict);
}

Status EgressLink::Allow(const NetworkRule& rule) {
  if (!rule.allow) return Error::Invalid("only allow rules can be added");
  return SendRule(rule);
}

Status EgressLink::EndForward(uint16_t port) { return Send(control::Unforward{port}); }

Result<control::Frame> EgressLink::Receive(int64_t deadline_ns) {
  for (;;) {
    Result<control::Frame> frame = control::ReceiveFrame(control_.get(), MSG_DONTWAIT);
    if (frame && frame->bytes.empty()) return Ended();
    if (frame) return frame;
    if (frame.error().errno_value == ECONNRESET) return Ended();
    if (frame.error().errno_value != EAGAIN) return std::move(frame).error().In(kProgram);
    const int64_t left_ms = deadline_ns == 0 ? 0 : (deadline_ns - MonotonicNanos()) / 1'000'000;
    if (left_ms <= 0) return control::Frame();
    struct pollfd wait {
      control_.get(), POLLIN, 0
    };
    ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left_ms, INT_MAX)));
  }
}

Status EgressLink::Serve(const OnEvent& on_event) {
  // Bounds the work of one turn of the supervisor's loop, so that the supervisor's timers are not delayed.
  constexpr int kMostFrames = 64;
  for (int i = 0; i < kMostFrames; ++i) {
    CAISSON_TRY(const control::Frame frame, Receive(0));
    if (frame.bytes.empty()) return {};
    CAISSON_TRY_VOID(Take(frame, on_event));
  }
  return {};
}

Result<int64_t> EgressLink::Settle(const OnEvent& on_event) {
  CAISSON_TRY_VOID(Send(control::Settle{kDeliverMs}));
  const int64_t deadline_ns = MonotonicNanos() + kSettleMs * 1'000'000;
  for (;;) {
    CAISSON_TRY(const control::Frame frame, Receive(deadline_ns));
    if (frame.bytes.empty()) return Error::System(ETIMEDOUT, std::string("wait for the record of ") + kProgram);
    control::Settled settled;
    if (control::Unpack(frame.bytes, settled))
      return static_cast<int64_t>(std::min<uint64_t>(settled.questions_malformed + settled.events_unlisted, INT64_MAX));
    CAISSON_TRY_VOID(Take(frame, on_event));
  }
}

Status EgressLink::Take(const control::Frame& frame, const OnEvent& on_event) {
  control::Event event;
  control::Bind bind;
  if (frame.fds.empty() && control::Unpack(frame.bytes, event)) {
    on_event(event);
    return {};
  }
  if (frame.fds.empty() && control::Unpack(frame.bytes, bind)) return TakeBind(bind);
  if (control::Ask ask; frame.fds.empty() && control::Unpack(frame.bytes, ask)) {
    if (!on_ask_) return Answer(ask.id, control::Verdict::kDeny);
    on_ask_(ask);
    return {};
  }
  if (control::Need need; frame.fds.empty() && control::Unpack(frame.bytes, need)) return TakeNeed(need);
  // The last message of the process, sent when its resolver has ended.
  if (control::Totals totals; control::Unpack(frame.bytes, totals)) return Ended();
  return Error::System(EPROTO, std::string(kProgram) + " said something else than it may");
}

bool EgressLink::MayListenAt(uint32_t address) const {
  const uint32_t hosts = static_cast<uint32_t>((uint64_t{1} << (32 - network_.pool_bits)) - 1);
  if (address - network_.pool <= hosts) return address - network_.pool >= 2;  // behind the network's and ours
  return std::find(network_.addresses.begin(), network_.addresses.end(), address) != network_.addresses.end();
}

Status EgressLink::TakeBind(const control::Bind& bind) {
  UniqueFd listener;
  control::Listener answer;
  answer.id = bind.id;
  answer.error = static_cast<uint32_t>(Listen(bind, listener));
  if (answer.error != 0) return Send(answer);
  listeners_.insert({bind.address, bind.port});
  names_.emplace(bind.address, bind.name);
  return Send(answer, {listener.get()});
}

// SECURITY: with such a socket the process can connect to servers of the sandbox and do nothing else: its filter has no
// bind.
Status EgressLink::TakeNeed(const control::Need& need) {
  control::InsideSocket answer;
  answer.id = need.id;
  answer.error = EACCES;
  if (!has_forwards_) return Send(answer);
  Result<UniqueFd> socket = need.ipv6 != 0 ? sockets_.MakeIpv6() : sockets_.Take();
  answer.error = socket ? 0 : static_cast<uint32_t>(std::max(socket.error().errno_value, 1));
  return socket ? Send(answer, {socket->get()}) : Send(answer);
}

// SECURITY: a listener is bound to exactly one address and one port. A listener at all addresses would also accept
// connections that the workload makes to its own loopback, and to addresses that stand for another name.
int EgressLink::Listen(const control::Bind& bind, UniqueFd& listener) {
  if (!MayListenAt(bind.address) || bind.port == 0) return EACCES;
  if (listeners_.size() >= kMaxListeners) return EMFILE;
  return ListenAt(CAISSON_LEFT_OUT("exact_listener") ? INADDR_ANY : bind.address, bind.port, listener);
}

int EgressLink::ListenAt(uint32_t address, uint16_t port, UniqueFd& listener) {
  Result<UniqueFd> socket = sockets_.Take();
  if (!socket) return socket.error().errno_value != 0 ? socket.error().errno_value : EIO;
  struct sockaddr_in place {};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(address);
  const int on = 1;
  if (::setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket->get(), reinterpret_cast<const struct sockaddr*>(&place), sizeof(place)) != 0 ||
      ::listen(socket->get(), kBacklog) != 0)
    return errno;
  listener = *std::move(socket);
  return 0;
}

std::string EgressLink::NameAt(uint32_t address) const {
  const auto found = names_.find(address);
  return found == names_.end() ? "" : found->second;
}

int64_t EgressLink::dropped_questions() const {
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t size = sizeof(memory);
  if (::getsockopt(dns_.get(), SOL_SOCKET, SO_MEMINFO, memory, &size) != 0) return -1;
  return size > SK_MEMINFO_DROPS * sizeof(uint32_t) ? int64_t{memory[SK_MEMINFO_DROPS]} : -1;
}

}  // namespace caisson::sandbox
