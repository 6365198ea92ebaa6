#include "client/wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "client/resolver.h"

namespace caisson::client {

namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;

Error TimedOut() { return Error{ErrorKind::kSystem, ETIMEDOUT, "the service did not answer in time"}; }

Status Await(int fd, short events, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ms = (deadline_ns - MonotonicNanos()) / kNanosPerMilli;
    if (left_ms <= 0) return TimedOut();
    pollfd poll{fd, events, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Error::System(errno, "poll");
  }
}

class PlainWire : public Wire {
 public:
  explicit PlainWire(UniqueFd socket) : socket_(std::move(socket)) {}

  Status Send(std::string_view bytes, int64_t timeout_ms) override {
    const int64_t deadline_ns = MonotonicNanos() + timeout_ms * kNanosPerMilli;
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
      } else if (errno == EAGAIN) {
        CAISSON_TRY_VOID(Await(socket_.get(), POLLOUT, deadline_ns));
      } else if (errno != EINTR) {
        return Error::System(errno, "send");
      }
    }
    return {};
  }

  Result<size_t> Receive(char* into, size_t size, int64_t timeout_ms) override {
    const int64_t deadline_ns = MonotonicNanos() + timeout_ms * kNanosPerMilli;
    for (;;) {
      const ssize_t count = ::recv(socket_.get(), into, size, 0);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno == EAGAIN) {
        CAISSON_TRY_VOID(Await(socket_.get(), POLLIN, deadline_ns));
      } else if (errno != EINTR) {
        return Error::System(errno, "receive");
      }
    }
  }

 private:
  UniqueFd socket_;
};

std::string TlsFault(SSL* tls) {
  const long verdict = tls != nullptr ? ::SSL_get_verify_result(tls) : X509_V_OK;
  if (verdict != X509_V_OK)
    return std::string("its certificate is refused: ") + ::X509_verify_cert_error_string(verdict);
  const unsigned long code = ::ERR_get_error();
  const char* reason = ::ERR_reason_error_string(code);
  return reason != nullptr ? reason : "the connection ended";
}

class TlsWire : public Wire {
 public:
  static Result<std::unique_ptr<Wire>> Open(UniqueFd socket, const std::string& host, int64_t timeout_ms) {
    auto wire = std::make_unique<TlsWire>();
    wire->socket_ = std::move(socket);
    wire->context_.reset(::SSL_CTX_new(::TLS_client_method()));
    SSL_CTX* const context = wire->context_.get();
    if (context == nullptr || ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
      return Error{ErrorKind::kSystem, 0, "TLS: " + TlsFault(nullptr)};
    // Besides the system's certificates, which OpenSSL also takes from SSL_CERT_FILE and SSL_CERT_DIR.
    ::SSL_CTX_set_default_verify_paths(context);
    ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    wire->tls_.reset(::SSL_new(context));
    SSL* const tls = wire->tls_.get();
    // A certificate for an IP address holds it as an address, not as a name.
    X509_VERIFY_PARAM* const rules = tls != nullptr ? ::SSL_get0_param(tls) : nullptr;
    const bool named =
        rules != nullptr &&
        (::X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str()) == 1 ||
         (::SSL_set1_host(tls, host.c_str()) == 1 && ::SSL_set_tlsext_host_name(tls, host.c_str()) == 1));
    if (!named || ::SSL_set_fd(tls, wire->socket_.get()) != 1)
      return Error{ErrorKind::kSystem, 0, "TLS: " + TlsFault(nullptr)};
    ::ERR_clear_error();
    CAISSON_TRY_VOID(wire->Repeat(timeout_ms, [&] { return ::SSL_connect(tls); }));
    return std::unique_ptr<Wire>(std::move(wire));
  }

  Status Send(std::string_view bytes, int64_t timeout_ms) override {
    while (!bytes.empty()) {
      size_t count = 0;
      CAISSON_TRY_VOID(
          Repeat(timeout_ms, [&] { return ::SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &count); }));
      bytes.remove_prefix(count);
    }
    return {};
  }

  Result<size_t> Receive(char* into, size_t size, int64_t timeout_ms) override {
    size_t count = 0;
    const Status read = Repeat(timeout_ms, [&] { return ::SSL_read_ex(tls_.get(), into, size, &count); });
    if (!read && ended_) return size_t{0};
    if (!read) return read.error();
    return count;
  }

 private:
  // Repeats the call until it succeeds, waiting for the socket as TLS asks.
  template <typename Step>
  Status Repeat(int64_t timeout_ms, Step step) {
    const int64_t deadline_ns = MonotonicNanos() + timeout_ms * kNanosPerMilli;
    for (;;) {
      const int done = step();
      if (done == 1) return {};
      const int why = ::SSL_get_error(tls_.get(), done);
      if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        CAISSON_TRY_VOID(Await(socket_.get(), why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline_ns));
        continue;
      }
      ended_ = why == SSL_ERROR_ZERO_RETURN;
      return Error{ErrorKind::kSystem, 0, "TLS: " + TlsFault(tls_.get())};
    }
  }

  struct Free {
    void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
    void operator()(SSL* tls) const { ::SSL_free(tls); }
  };
  UniqueFd socket_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
  bool ended_ = false;
};

Result<UniqueFd> Connect(const sockaddr* address, socklen_t size, int64_t deadline_ns) {
  UniqueFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::System(errno, "socket");
  if (::connect(fd.get(), address, size) == 0) return fd;
  if (errno != EINPROGRESS && errno != EAGAIN) return Error::System(errno, "connect");
  CAISSON_TRY_VOID(Await(fd.get(), POLLOUT, deadline_ns));
  int fault = 0;
  socklen_t fault_size = sizeof(fault);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &fault, &fault_size);
  if (fault != 0) return Error::System(fault, "connect");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

Result<UniqueFd> ConnectTo(const Endpoint& endpoint, int64_t deadline_ns) {
  if (!endpoint.socket.empty()) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (endpoint.socket.size() >= sizeof(address.sun_path)) return Error::System(ENAMETOOLONG, "connect");
    std::memcpy(address.sun_path, endpoint.socket.data(), endpoint.socket.size());
    return Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address), deadline_ns);
  }
  CAISSON_TRY(const std::vector<Address> addresses, Resolve(endpoint.host, std::stoi(endpoint.port)));
  Result<UniqueFd> fd = TimedOut();
  for (const Address& address : addresses) {
    fd = Connect(reinterpret_cast<const sockaddr*>(&address.storage), address.size, deadline_ns);
    if (fd) break;
  }
  return fd;
}

Error Explain(const Endpoint& endpoint, const Error& cause) {
  const std::string place = endpoint.Description();
  switch (cause.errno_value) {
    case ENOENT:
    case ECONNREFUSED:
      return {ErrorKind::kSystem, cause.errno_value,
              "no service at " + place +
                  (endpoint.socket.empty() ? "; is it running, and is this its port?"
                                           : "; start one with: caissond (or name its address: --url, CAISSON_URL)")};
    case EACCES:
      return Error::Denied(
          "not allowed to open " + place +
          "; its owner must give this user access, or use a token on a TCP port (CAISSON_URL, CAISSON_TOKEN)");
    default:
      return Error{cause.kind, cause.errno_value, place + ": " + cause.message};
  }
}

}  // namespace

Result<std::unique_ptr<Wire>> Wire::Open(const Endpoint& endpoint, int64_t timeout_ms) {
  Result<UniqueFd> socket = ConnectTo(endpoint, MonotonicNanos() + timeout_ms * kNanosPerMilli);
  if (!socket) return Explain(endpoint, socket.error());
  if (!endpoint.tls) return std::unique_ptr<Wire>(std::make_unique<PlainWire>(*std::move(socket)));
  Result<std::unique_ptr<Wire>> wire = TlsWire::Open(*std::move(socket), endpoint.host, timeout_ms);
  if (!wire) return Explain(endpoint, wire.error());
  return wire;
}

}  // namespace caisson::client
