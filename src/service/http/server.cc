#include "service/http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "service/http/call_pool.h"
#include "service/http/connection.h"
#include "service/http/listener.h"
#include "service/http/network.h"

namespace caisson::service::http {

namespace {

// Sent to a connection for which there is no room. Such a refusal costs only the system call.
constexpr char kNoRoom[] =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

Peer LocalPeer(int fd) {
  Peer peer;
  peer.local = true;
  struct ucred credentials {};
  socklen_t size = sizeof(credentials);
  // The credentials at connect time: neither a later setuid nor passing the descriptor changes them.
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {};
  peer.uid = credentials.uid;
  peer.is_operator = credentials.uid == 0 || credentials.uid == ::geteuid();
  peer.address = "uid:" + std::to_string(credentials.uid);
  return peer;
}

Peer RemotePeer(int fd, bool tls) {
  Peer peer;
  peer.secure = tls;
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&name)->sin_addr, text, sizeof(text));
    peer.address = text;
    return peer;
  }
  // One machine can choose any address of its /64.
  in6_addr address = reinterpret_cast<sockaddr_in6*>(&name)->sin6_addr;
  std::memset(address.s6_addr + 8, 0, 8);
  ::inet_ntop(AF_INET6, &address, text, sizeof(text));
  peer.address = std::string(text) + "/64";
  return peer;
}

Status CheckConfig(const ServerConfig& config) {
  if (config.socket.empty() && config.listen.empty())
    return Error::Invalid("socket, listen: neither is given, so no client could connect");
  if (config.tls_certificate.empty() != config.tls_key.empty())
    return Error::Invalid("tls_certificate, tls_key: set both or neither");
  if (!config.listen.empty() && config.tokens.empty())
    return Error::Invalid(
        "listen: a TCP port is open to every user of the machine, so callers must have tokens; name their file with "
        "tokens, or use the unix socket alone");
  if (config.listen.empty() && !config.tls_certificate.empty())
    return Error::Invalid("tls_certificate: there is no TCP port to use it on; give listen too");
  return {};
}

Status CheckReach(const ServerConfig& config, const TcpListener& listener) {
  if (listener.loopback || !config.tls_certificate.empty()) return {};
  return Error::Invalid(
      "listen: tokens and results would cross the network unencrypted; give tls_certificate and tls_key, or listen "
      "on 127.0.0.1 or [::1] and let a proxy on this machine encrypt");
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerConfig& config, std::shared_ptr<Handler> handler, std::unique_ptr<Network> network)
      : network_(std::move(network)),
        pool_(std::make_unique<CallPool>(config.bounds.threads, config.bounds.waiting_calls)) {
    state_.bounds = config.bounds;
    state_.spool = config.spool;
    state_.handler = std::move(handler);
    state_.on_finished = config.on_finished;
    state_.network = network_.get();
    state_.mailbox = std::make_shared<Mailbox>(*network_);
    state_.pool = pool_.get();
    state_.on_empty = [this] {
      const std::lock_guard lock(mutex_);
      empty_ = true;
      changed_.notify_all();
    };
  }

  ~Impl() {
    Drain(0);
    network_->Stop();
    if (thread_.joinable()) thread_.join();
    state_.mailbox->Shut();
    pool_.reset();  // its calls hold connections, and these their channels in the network
    network_.reset();
  }

  Status Listen(const ServerConfig& config) {
    // TCP first: it fails more often, and the unix socket announces the service.
    if (!config.listen.empty()) {
      CAISSON_TRY(TcpListener tcp, ListenTcp(config.listen));
      CAISSON_TRY_VOID(CheckReach(config, tcp));
      port_ = tcp.port;
      const bool tls = !config.tls_certificate.empty();
      network_->Accept(std::move(tcp.socket), [this, tls](UniqueFd fd) {
        const int on = 1;
        ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        Peer peer = RemotePeer(fd.get(), tls);
        AddConnection(std::move(fd), std::move(peer), tls);
      });
    }
    if (!config.socket.empty()) {
      CAISSON_TRY(unix_, UnixListener::Listen(config.socket, 0600));
      network_->Accept(unix_.TakeSocket(), [this](UniqueFd fd) {
        Peer peer = LocalPeer(fd.get());
        AddConnection(std::move(fd), std::move(peer), false);
      });
    }
    thread_ = std::thread([this] { network_->Run(); });
    return {};
  }

  void Drain(int64_t grace_ms) {
    if (!thread_.joinable()) return;
    network_->Post([this] {
      state_.draining = true;
      network_->StopAccepting();
      const auto open = OpenConnections();
      for (const auto& connection : open) connection->Drain();
      if (state_.connections.empty()) state_.on_empty();
    });
    if (AwaitEmpty(grace_ms)) return unix_.Remove();
    network_->Post([this] {
      const auto open = OpenConnections();
      for (const auto& connection : open) connection->Close();
    });
    AwaitEmpty(-1);
    unix_.Remove();
  }

  int port() const { return port_; }

 private:
  // A copy, because closing a connection changes the set.
  std::vector<std::shared_ptr<Connection>> OpenConnections() const {
    return {state_.connections.begin(), state_.connections.end()};
  }

  void AddConnection(UniqueFd fd, Peer peer, bool tls) {
    if (peer.address.empty()) return;  // gone already
    if (!state_.MakeRoom(peer)) {
      if (!tls) static_cast<void>(::send(fd.get(), kNoRoom, sizeof(kNoRoom) - 1, MSG_DONTWAIT | MSG_NOSIGNAL));
      return;
    }
    std::make_shared<Connection>(state_, network_->Open(std::move(fd), tls), std::move(peer))->Start();
  }

  // Negative: for ever.
  bool AwaitEmpty(int64_t milliseconds) {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return empty_; };
    if (milliseconds >= 0) return changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), done);
    changed_.wait(lock, done);
    return true;
  }

  ServerState state_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<CallPool> pool_;
  UnixListener unix_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool empty_ = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
void Server::Drain(int64_t grace_ms) { impl_->Drain(std::max<int64_t>(0, grace_ms)); }
int Server::port() const { return impl_->port(); }

Result<std::unique_ptr<Server>> Server::Start(const ServerConfig& config, std::shared_ptr<Handler> handler) {
  CAISSON_TRY_VOID(CheckConfig(config));
  CAISSON_TRY(std::unique_ptr<Network> network, Network::Make(config.tls_certificate, config.tls_key));
  auto impl = std::make_unique<Impl>(config, std::move(handler), std::move(network));
  CAISSON_TRY_VOID(impl->Listen(config));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

}  // namespace caisson::service::http
