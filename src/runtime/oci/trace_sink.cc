#include "runtime/oci/trace_sink.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace caisson::runtime::oci {

namespace {

// More wait in the socket, and gVisor's kernel with them, until these were taken.
constexpr size_t kMostSeen = 4096;
constexpr size_t kPacketsPerTurn = 512;
constexpr int kAgent = 1;  // the process inside that is ours
constexpr int kHandshakeMs = 10'000;

void Signal(const UniqueFd& event) {
  const uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof(one));
}

void Clear(const UniqueFd& event) {
  uint64_t count = 0;
  (void)!::read(event.get(), &count, sizeof(count));
}

}  // namespace

Result<std::unique_ptr<TraceSink>> TraceSink::Listen(const std::string& path, TraceJudge judge) {
  std::unique_ptr<TraceSink> sink(new TraceSink(path, std::move(judge)));
  sink->listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sink->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  sink->attention_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Error::System(ENAMETOOLONG, path);
  std::memcpy(address.sun_path, path.data(), path.size());
  if (!sink->listener_ || !sink->wake_ || !sink->attention_ ||
      ::bind(sink->listener_.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(sink->listener_.get(), 1) != 0)
    return Error::System(errno, "listen for the trace session of gVisor");
  // Signals of the process are for its other threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  sink->thread_ = std::thread([raw = sink.get()] { raw->Run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return sink;
}

TraceSink::~TraceSink() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  if (wake_) Signal(wake_);
  if (thread_.joinable()) thread_.join();
}

std::string TraceSink::Configuration() const {
  std::string points;
  const auto add = [&](const std::string& name, const char* optional) {
    points += std::string(points.empty() ? "" : ",\n") + R"({"name":")" + name + R"(","optional_fields":[)" + optional +
              R"(],"context_fields":["group_id","cwd"]})";
  };
  for (const char* name : {"open", "connect", "bind"}) add(std::string("syscall/") + name + "/exit", "");
  for (const char* name : {"openat", "creat"}) add(std::string("syscall/") + name + "/exit", R"("fd_path")");
  for (const int32_t number : judge_.RawCalls()) add("syscall/sysno/" + std::to_string(number) + "/exit", "");
  // Calls that this gVisor does not know have no point, and no effect either. A sandbox that cannot be observed does
  // not start. A packet for which the socket has no room is sent again for some seconds before it is dropped.
  return R"({"trace_session":{"name":"Default","ignore_missing":true,"points":[)" + points +
         R"(],"sinks":[{"name":"remote","ignore_setup_error":false,"config":{"endpoint":")" + path_ +
         R"(","retries":1000,"backoff":"25us","backoff_max":"10ms"}}]}})";
}

void TraceSink::Run() {
  if (!Accept()) return;
  for (;;) {
    int connection = -1;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_ || !Drain()) return;
      if (seen_.size() < kMostSeen) connection = connection_.get();
    }
    struct pollfd waits[] = {{connection, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) Clear(wake_);
  }
}

// SECURITY: only root reaches the socket; the first connection is runsc's, and there is no second.
bool TraceSink::Accept() {
  const auto fail = [this](const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = what;
    Signal(attention_);
    return false;
  };
  struct pollfd waits[] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  while (waits[0].revents == 0) {
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return fail("wait for gVisor's trace session");
    if (waits[1].revents == 0) continue;
    Clear(wake_);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
  }
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection) return fail("accept gVisor's trace session");
  struct ucred peer {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != 0)
    return fail("another user connected in place of gVisor");
  struct pollfd greeting {
    connection.get(), POLLIN, 0
  };
  char bytes[1024];
  if (::poll(&greeting, 1, kHandshakeMs) <= 0) return fail("gVisor's trace session did not begin");
  const ssize_t received = ::recv(connection.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  const Result<uint64_t> version =
      DecodeTraceHandshake(std::string_view(bytes, static_cast<size_t>(received > 0 ? received : 0)));
  if (!version || *version < kTraceVersion) return fail("gVisor's trace session speaks another protocol");
  if (::send(connection.get(), kTraceHandshakeAnswer.data(), kTraceHandshakeAnswer.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kTraceHandshakeAnswer.size()))
    return fail("gVisor's trace session ended at once");
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_ = std::move(connection);
  return true;
}

bool TraceSink::Drain() {
  if (!connection_ || ended_ || !failure_.empty()) return false;
  char packet[kMaxTracePacket];
  for (size_t i = 0; i < kPacketsPerTurn && seen_.size() < kMostSeen; ++i) {
    const ssize_t size = ::recv(connection_.get(), packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size <= 0) {
      ended_ = true;
    } else if (static_cast<size_t>(size) > sizeof(packet)) {
      failure_ = "a packet of gVisor's trace session is too large";
    } else {
      OnPacket({packet, static_cast<size_t>(size)});
    }
    if (ended_ || !failure_.empty()) {
      Signal(attention_);
      return false;
    }
  }
  return true;
}

void TraceSink::OnPacket(std::string_view packet) {
  const Result<TraceEvent> event = DecodeTraceEvent(packet);
  if (!event) {
    failure_ = event.error().message;
    return;
  }
  const size_t before = seen_.size();
  if (event->dropped > dropped_) {
    Violation violation;
    violation.violation_class = ViolationClass::kSyscall;
    violation.reason = "unreadable";
    violation.evidence.emplace_back("dropped_events", int64_t{event->dropped} - dropped_);
    violation.suggestion = "calls came faster than they could be recorded, so what some of them did is not known";
    dropped_ = event->dropped;
    seen_.push_back(std::move(violation));
  }
  if (TraceJudge::IsRefusedFork(*event)) ++refused_forks_;
  if (event->pid != kAgent) {
    if (std::optional<Violation> violation = judge_.Judge(*event)) seen_.push_back(*std::move(violation));
  }
  if (seen_.size() != before) Signal(attention_);
}

Result<std::vector<Violation>> TraceSink::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clear(attention_);
  // Until the socket is empty, unless there is enough to return already.
  while (seen_.empty()) {
    struct pollfd arrived {
      connection_.get(), POLLIN, 0
    };
    if (!Drain() || ::poll(&arrived, 1, 0) <= 0) break;
  }
  if (!seen_.empty()) {
    Signal(attention_);  // there may be more
    Signal(wake_);       // and there is room again
    return std::exchange(seen_, {});
  }
  if (!failure_.empty()) return Error::System(EPROTO, "wall observation: " + failure_);
  return std::vector<Violation>();
}

Result<int64_t> TraceSink::CountRefusedForks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (seen_.size() < kMostSeen) Drain();
  return refused_forks_;
}

bool TraceSink::is_connected() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connection_ && !ended_ && failure_.empty();
}

}  // namespace caisson::runtime::oci
