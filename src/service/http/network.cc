#include "service/http/network.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

namespace caisson::service::http {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using TlsStream = asio::ssl::stream<Socket>;

IoEnd Translate(const error_code& fault, bool timed_out) {
  if (!fault) return IoEnd::kOk;
  if (timed_out) return IoEnd::kTimeout;
  if (fault == asio::error::eof || fault == asio::ssl::error::stream_truncated) return IoEnd::kEof;
  return IoEnd::kFailed;
}

// A deadline for the current socket operation. It cancels but does not close, so that an answer can still be written.
class Deadline : public std::enable_shared_from_this<Deadline> {
 public:
  explicit Deadline(Socket& socket) : socket_(&socket), timer_(socket.get_executor()) {}

  void Begin(int64_t milliseconds) {
    passed_ = false;
    const uint64_t turn = ++turn_;
    timer_.expires_after(std::chrono::milliseconds(milliseconds));
    timer_.async_wait([weak = weak_from_this(), turn](const error_code& fault) {
      const auto self = weak.lock();
      // A timer that fired just before it was cancelled arrives here without an error; it is ignored.
      if (fault || !self || self->turn_ != turn) return;
      self->passed_ = true;
      error_code ignored;
      self->socket_->cancel(ignored);
    });
  }
  // True if the deadline ended the operation.
  bool End() {
    ++turn_;
    timer_.cancel();
    return passed_;
  }

 private:
  Socket* socket_;
  asio::steady_timer timer_;
  uint64_t turn_ = 0;
  bool passed_ = false;
};

// The same over a socket and over TLS on one.
template <typename Stream>
class AsioChannel : public Channel, public std::enable_shared_from_this<AsioChannel<Stream>> {
 public:
  template <typename... Arguments>
  explicit AsioChannel(Socket socket, Arguments&... arguments)
      : stream_(std::move(socket), arguments...), deadline_(std::make_shared<Deadline>(lowest())) {}

  void Handshake(int64_t timeout_ms, Done done) override {
    if constexpr (kTls) {
      deadline_->Begin(timeout_ms);
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this(), done = std::move(done)](const error_code& fault) {
                                self->Ended(fault, 0, done);
                              });
    } else {
      static_cast<void>(timeout_ms);
      asio::post(stream_.get_executor(), [done = std::move(done)] { done(IoEnd::kOk, 0); });
    }
  }

  void Read(char* into, size_t size, int64_t timeout_ms, Done done) override {
    deadline_->Begin(timeout_ms);
    stream_.async_read_some(asio::buffer(into, size),
                            [self = this->shared_from_this(), done = std::move(done)](
                                const error_code& fault, size_t count) { self->Ended(fault, count, done); });
  }

  void Write(std::string_view first, std::string_view second, int64_t timeout_ms, Done done) override {
    to_write_ = {asio::buffer(first.data(), first.size()), asio::buffer(second.data(), second.size())};
    written_ = 0;
    deadline_->Begin(timeout_ms);
    WriteRest(std::move(done));
  }

  void EndSending(int64_t timeout_ms, Done done) override {
    if constexpr (kTls) {
      deadline_->Begin(timeout_ms);
      stream_.async_shutdown([self = this->shared_from_this(), done = std::move(done)](const error_code& fault) {
        self->Ended(fault, 0, done);
      });
    } else {
      static_cast<void>(timeout_ms);
      error_code fault;
      stream_.shutdown(Socket::shutdown_send, fault);
      asio::post(stream_.get_executor(), [done = std::move(done), fault] { done(Translate(fault, false), 0); });
    }
  }

  void Close() override {
    error_code ignored;
    lowest().close(ignored);
  }

 private:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  Socket& lowest() {
    if constexpr (kTls)
      return stream_.next_layer();
    else
      return stream_;
  }

  void Ended(const error_code& fault, size_t count, const Done& done) {
    const bool timed_out = deadline_->End();
    done(Translate(fault, timed_out), count);
  }

  void WriteRest(Done done) {
    if (to_write_[0].size() + to_write_[1].size() == 0) {
      deadline_->End();
      asio::post(stream_.get_executor(),
                 [this, self = this->shared_from_this(), done = std::move(done)] { done(IoEnd::kOk, written_); });
      return;
    }
    stream_.async_write_some(
        to_write_, [self = this->shared_from_this(), done = std::move(done)](const error_code& fault, size_t count) {
          self->written_ += count;
          if (fault) return self->Ended(fault, self->written_, done);
          for (asio::const_buffer& part : self->to_write_) {
            const size_t taken = std::min(count, part.size());
            part += taken;
            count -= taken;
          }
          self->WriteRest(done);
        });
  }

  Stream stream_;
  std::shared_ptr<Deadline> deadline_;
  std::array<asio::const_buffer, 2> to_write_;
  size_t written_ = 0;
};

class AsioTimer : public Timer {
 public:
  AsioTimer(asio::io_context& loop, int64_t milliseconds, std::function<void()> call)
      : timer_(loop, std::chrono::milliseconds(milliseconds)),
        call_(std::make_shared<std::function<void()>>(std::move(call))) {
    timer_.async_wait([weak = std::weak_ptr(call_)](const error_code& fault) {
      const auto alive = weak.lock();
      if (!fault && alive) (*alive)();
    });
  }

 private:
  asio::steady_timer timer_;
  std::shared_ptr<std::function<void()>> call_;
};

std::string TlsFault() {
  const unsigned long code = ::ERR_get_error();
  const char* reason = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return reason != nullptr ? reason : "unknown fault";
}

Status LoadTls(asio::ssl::context& tls, const std::string& certificate, const std::string& key) {
  ::SSL_CTX* const context = tls.native_handle();
  if (::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
    return Error::Unsupported("TLS 1.2: " + TlsFault());
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
    return Error::Invalid("tls_certificate: " + certificate + ": " + TlsFault());
  struct stat info {};
  if (::stat(key.c_str(), &info) != 0) return Error::System(errno, "tls_key: " + key);
  if ((info.st_mode & S_IRWXO) != 0)
    return Error::Invalid("tls_key: every user can open " + key + "; run: chmod o= " + key);
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
    return Error::Invalid("tls_key: " + key + ": " + TlsFault());
  if (::SSL_CTX_check_private_key(context) != 1)
    return Error::Invalid("tls_key: " + key + " is not the key of " + certificate);
  return {};
}

class AsioNetwork : public Network {
 public:
  AsioNetwork() : work_(loop_.get_executor()) {}

  Status UseTls(const std::string& certificate, const std::string& key) {
    tls_.emplace(asio::ssl::context::tls_server);
    return LoadTls(*tls_, certificate, key);
  }

  void Run() override { loop_.run(); }
  void Stop() override { loop_.stop(); }
  void Post(std::function<void()> call) override { asio::post(loop_, std::move(call)); }

  std::unique_ptr<Timer> After(int64_t milliseconds, std::function<void()> call) override {
    return std::make_unique<AsioTimer>(loop_, milliseconds, std::move(call));
  }

  void Accept(UniqueFd listener, std::function<void(UniqueFd)> accepted) override {
    listeners_.push_back(std::make_shared<Listener>(loop_, listener.Release(), std::move(accepted)));
    Await(listeners_.back());
  }

  void StopAccepting() override { listeners_.clear(); }

  std::shared_ptr<Channel> Open(UniqueFd fd, bool tls) override {
    Socket socket(loop_, asio::generic::stream_protocol(AF_UNSPEC, 0), fd.Release());
    if (tls) return std::make_shared<AsioChannel<TlsStream>>(std::move(socket), *tls_);
    return std::make_shared<AsioChannel<Socket>>(std::move(socket));
  }

 private:
  struct Listener {
    Listener(asio::io_context& loop, int fd, std::function<void(UniqueFd)> on_accepted)
        : socket(loop, fd), accepted(std::move(on_accepted)), pause(loop) {}
    asio::posix::stream_descriptor socket;
    std::function<void(UniqueFd)> accepted;
    asio::steady_timer pause;
  };

  void Await(const std::shared_ptr<Listener>& listener) {
    listener->socket.async_wait(asio::posix::stream_descriptor::wait_read,
                                [this, weak = std::weak_ptr(listener)](const error_code& fault) {
                                  const auto alive = weak.lock();
                                  if (!fault && alive) AcceptAll(alive);
                                });
  }

  void AcceptAll(const std::shared_ptr<Listener>& listener) {
    for (;;) {
      UniqueFd fd(::accept4(listener->socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        listener->accepted(std::move(fd));
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return Await(listener);
      // Out of descriptors or memory: the connection waits in the kernel's backlog, and we must not spin.
      listener->pause.expires_after(std::chrono::milliseconds(100));
      listener->pause.async_wait([this, weak = std::weak_ptr(listener)](const error_code& fault) {
        const auto alive = weak.lock();
        if (!fault && alive) AcceptAll(alive);
      });
      return;
    }
  }

  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::optional<asio::ssl::context> tls_;
  std::vector<std::shared_ptr<Listener>> listeners_;
};

}  // namespace

Result<std::unique_ptr<Network>> Network::Make(const std::string& tls_certificate, const std::string& tls_key) {
  auto network = std::make_unique<AsioNetwork>();
  if (!tls_certificate.empty()) CAISSON_TRY_VOID(network->UseTls(tls_certificate, tls_key));
  return Result<std::unique_ptr<Network>>(std::move(network));
}

}  // namespace caisson::service::http
