#include "runtime/kubernetes/attach.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/version.h"
#include "runtime/kubernetes/dialer.h"

namespace caisson::runtime::kubernetes {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;
using boost::system::error_code;

namespace {

constexpr int64_t kConnectMs = 30'000;
constexpr size_t kChunkBytes = size_t{32} << 10;
constexpr size_t kMaxMessageBytes = size_t{1} << 20;
constexpr char kNewProtocol[] = "v5.channel.k8s.io";
constexpr char kOldProtocol[] = "v4.channel.k8s.io";  // cannot close the standard input alone

class WebSocketStream : public AttachedStream {
 public:
  ~WebSocketStream() override {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status Connect(Dialer& dialer, const std::string& path) {
    CAISSON_TRY(const std::unique_ptr<TlsStream> tls, dialer.Connect(context_, kConnectMs));
    CAISSON_TRY(const std::string authorization, dialer.Authorization());
    socket_.emplace(std::move(*tls));
    beast::get_lowest_layer(*socket_).expires_never();
    websocket::stream_base::timeout timeout{};
    timeout.handshake_timeout = std::chrono::milliseconds(kConnectMs);
    timeout.idle_timeout = std::chrono::seconds(60);  // a peer that answers no ping is gone
    timeout.keep_alive_pings = true;
    socket_->set_option(timeout);
    socket_->set_option(websocket::stream_base::decorator([&](websocket::request_type& request) {
      request.set(http::field::user_agent, std::string("caisson/") + kVersion);
      request.set(http::field::sec_websocket_protocol, std::string(kNewProtocol) + ", " + kOldProtocol);
      if (!authorization.empty()) request.set(http::field::authorization, authorization);
    }));
    socket_->read_message_max(kMaxMessageBytes);
    socket_->binary(true);
    // The API server takes each frame for a message of its own, whose first byte is a channel.
    socket_->auto_fragment(false);
    websocket::response_type response;
    const error_code error = Complete(context_, [&](auto done) {
      socket_->async_handshake(response, dialer.HostField(), dialer.access().path + path, done);
    });
    if (error == websocket::error::upgrade_declined) {
      return Error{
          ErrorKind::kSystem, 0,
          "the Kubernetes API server refused to attach to the pod: " + std::to_string(response.result_int()) + " " +
              std::string(response.reason()) +
              (response.result_int() == 403 ? "; the Role of deploy/kubernetes/rbac.yaml has the rights that are needed"
                                            : "")};
    }
    if (error) return dialer.Failed("attach to the pod", error);
    const auto chosen = response[http::field::sec_websocket_protocol];
    closes_input_ = chosen == kNewProtocol;
    if (!closes_input_ && chosen != kOldProtocol)
      return Error{ErrorKind::kSystem, 0, "the Kubernetes API server speaks neither v5 nor v4 of its attach protocol"};
    return {};
  }

  void Begin(UniqueFd from_runtime, UniqueFd to_runtime) {
    from_.assign(asio::local::stream_protocol(), from_runtime.Release());
    to_.assign(asio::local::stream_protocol(), to_runtime.Release());
    ReadRuntime();
    ReadPod();
    context_.restart();
    thread_ = std::thread([this] {
      context_.run();
      End();
    });
  }

  bool AwaitEnd(int64_t within_ms) override {
    std::unique_lock lock(mutex_);
    return ended_signal_.wait_for(lock, std::chrono::milliseconds(within_ms), [this] { return ended_; });
  }

 private:
  void ReadPod() {
    socket_->async_read(received_, [this](error_code error, size_t) {
      if (error) return End();
      const std::string_view message(static_cast<const char*>(received_.data().data()), received_.size());
      const std::optional<AttachMessage> read = ReadAttachMessage(message);
      if (!read) return End();
      if (read->channel != AttachChannel::kOutput || !to_.is_open()) {
        received_.consume(received_.size());
        return ReadPod();
      }
      asio::async_write(to_, asio::buffer(read->bytes.data(), read->bytes.size()), [this](error_code failed, size_t) {
        error_code ignored;
        if (failed) to_.close(ignored);  // the runtime no longer reads; what still comes is dropped
        received_.consume(received_.size());
        ReadPod();
      });
    });
  }

  void ReadRuntime() {
    from_.async_read_some(asio::buffer(chunk_.data() + 1, kChunkBytes), [this](error_code error, size_t size) {
      if (error) return CloseInput();
      chunk_[0] = static_cast<char>(AttachChannel::kInput);
      socket_->async_write(asio::buffer(chunk_.data(), size + 1), [this](error_code failed, size_t) {
        if (failed) return End();
        ReadRuntime();
      });
    });
  }

  // Ends the agent: its standard input ends.
  void CloseInput() {
    if (!closes_input_) return End();
    static constexpr char kCloseInput[] = {static_cast<char>(AttachChannel::kClose), 0};
    socket_->async_write(asio::buffer(kCloseInput), [this](error_code failed, size_t) {
      if (failed) End();
    });
  }

  // The stream has ended: the runtime reads the end of its socket.
  void End() {
    error_code ignored;
    to_.close(ignored);
    from_.close(ignored);
    beast::get_lowest_layer(*socket_).close();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended_signal_.notify_all();
  }

  asio::io_context context_;
  std::optional<websocket::stream<TlsStream>> socket_;
  asio::local::stream_protocol::socket from_{context_}, to_{context_};
  beast::flat_buffer received_;
  std::array<char, kChunkBytes + 1> chunk_{};
  bool closes_input_ = false;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ended_signal_;
  bool ended_ = false;
};

}  // namespace

std::optional<AttachMessage> ReadAttachMessage(std::string_view message) {
  if (message.empty()) return AttachMessage{};  // sent by some servers to open a channel
  const auto channel = static_cast<uint8_t>(message[0]);
  if (channel > static_cast<uint8_t>(AttachChannel::kStatus) && channel != static_cast<uint8_t>(AttachChannel::kClose))
    return std::nullopt;
  return AttachMessage{static_cast<AttachChannel>(channel), message.substr(1)};
}

Result<std::unique_ptr<AttachedStream>> AttachedStream::Open(const std::shared_ptr<Dialer>& dialer,
                                                             const std::string& path, UniqueFd from_runtime,
                                                             UniqueFd to_runtime) {
  auto stream = std::make_unique<WebSocketStream>();
  CAISSON_TRY_VOID(stream->Connect(*dialer, path));
  stream->Begin(std::move(from_runtime), std::move(to_runtime));
  return std::unique_ptr<AttachedStream>(std::move(stream));
}

}  // namespace caisson::runtime::kubernetes
