#include "service/http/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "base/words.h"

namespace caisson::service::http {

namespace {

constexpr int kBacklog = 256;

Result<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Error::Invalid("socket: " + Quoted(path) + " has more than " + std::to_string(sizeof(address.sun_path) - 1) +
                          " bytes, the most the kernel takes");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UniqueFd> UnixSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::System(errno, "socket");
  return fd;
}

Result<UniqueFd> TakeLock(const std::string& path) {
  const std::string name = path + ".lock";
  UniqueFd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Error::System(errno, "socket: open " + name);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Error::Conflict("socket: another server listens on " + path);
    return Error::System(errno, "socket: lock " + name);
  }
  return lock;
}

// The path may only hold a socket without a listener.
Status ExpectStale(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return Error::System(errno, "socket: " + path);
  }
  if (!S_ISSOCK(info.st_mode)) return Error::Conflict("socket: " + path + " exists and is not a socket");
  CAISSON_TRY(const sockaddr_un address, UnixAddress(path));
  CAISSON_TRY(const UniqueFd probe, UnixSocket());
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN)
    return Error::Conflict("socket: another server listens on " + path);
  if (errno != ECONNREFUSED) return Error::System(errno, "socket: connect to " + path);
  return {};
}

// A private directory beside the path; the destructor removes it with its contents.
class Nest {
 public:
  static Result<Nest> Make(const std::string& path) {
    const size_t slash = path.rfind('/');
    Nest nest;
    nest.path_ = (slash == std::string::npos ? std::string("./") : path.substr(0, slash + 1)) + ".s-XXXXXX";
    if (::mkdtemp(nest.path_.data()) == nullptr) return Error::System(errno, "socket: make a directory beside " + path);
    return nest;
  }
  Nest() = default;
  Nest(Nest&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Nest& operator=(Nest&&) = delete;
  ~Nest() {
    if (path_.empty()) return;
    ::unlink(socket().c_str());
    ::rmdir(path_.c_str());
  }
  std::string socket() const { return path_ + "/s"; }

 private:
  std::string path_;
};

}  // namespace

Result<UnixListener> UnixListener::Listen(const std::string& path, mode_t mode) {
  UnixListener listener;
  CAISSON_TRY(listener.lock_, TakeLock(path));
  CAISSON_TRY_VOID(ExpectStale(path));
  CAISSON_TRY_VOID(UnixAddress(path));
  CAISSON_TRY(const Nest nest, Nest::Make(path));
  CAISSON_TRY(const sockaddr_un address, UnixAddress(nest.socket()));
  CAISSON_TRY(listener.socket_, UnixSocket());
  if (::bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return Error::System(errno, "socket: bind below " + path);
  if (::chmod(nest.socket().c_str(), mode) != 0) return Error::System(errno, "socket: chmod " + path);
  if (::listen(listener.socket_.get(), kBacklog) != 0) return Error::System(errno, "socket: listen on " + path);
  struct stat info {};
  if (::lstat(nest.socket().c_str(), &info) != 0) return Error::System(errno, "socket: stat " + path);
  if (::rename(nest.socket().c_str(), path.c_str()) != 0) return Error::System(errno, "socket: move to " + path);
  listener.path_ = path;
  listener.device_ = info.st_dev;
  listener.inode_ = info.st_ino;
  return listener;
}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  path_ = std::exchange(other.path_, {});
  socket_ = std::move(other.socket_);
  lock_ = std::move(other.lock_);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

void UnixListener::Remove() {
  struct stat info {};
  // Removes only our own socket, in case another process ignored the lock and replaced it.
  if (!path_.empty() && ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_)
    ::unlink(path_.c_str());
  path_.clear();
  socket_.Reset();
  lock_.Reset();
}

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  bool loopback = false;
};

Result<Address> ReadAddress(const std::string& text) {
  const auto fault = [&](const std::string& what) { return Error::Invalid("listen: " + Quoted(text) + " " + what); };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return fault("is not ADDRESS:PORT");
  const Result<int64_t> port = ParseCount(text.substr(colon + 1));
  if (!port || *port > 65535) return fault("has no port from 0 to 65535");
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  Address address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(*port));
    address.size = sizeof(*six);
    if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six->sin6_addr) != 1)
      return fault("has no IPv6 address in its brackets");
    address.loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    return address;
  }
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  four->sin_family = AF_INET;
  four->sin_port = htons(static_cast<uint16_t>(*port));
  address.size = sizeof(*four);
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) != 1)
    return fault("has no numeric address; write 127.0.0.1:PORT or [::1]:PORT");
  address.loopback = (ntohl(four->sin_addr.s_addr) >> 24) == 127;
  return address;
}

}  // namespace

Result<TcpListener> ListenTcp(const std::string& text) {
  CAISSON_TRY(Address address, ReadAddress(text));
  auto* const name = reinterpret_cast<sockaddr*>(&address.storage);
  TcpListener listener;
  listener.loopback = address.loopback;
  listener.socket.Reset(::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = listener.socket.get();
  if (fd < 0) return Error::System(errno, "listen: socket");
  const int on = 1;
  if (::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      (name->sa_family == AF_INET6 && ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0))
    return Error::System(errno, "listen: setsockopt");
  if (::bind(fd, name, address.size) != 0) return Error::System(errno, "listen: bind " + Quoted(text));
  if (::listen(fd, kBacklog) != 0) return Error::System(errno, "listen on " + Quoted(text));
  if (::getsockname(fd, name, &address.size) != 0) return Error::System(errno, "listen: getsockname");
  listener.port = ntohs(name->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                                                    : reinterpret_cast<sockaddr_in*>(name)->sin_port);
  return listener;
}

}  // namespace caisson::service::http
