#include "runtime/kubernetes/api.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/version.h"
#include "runtime/kubernetes/dialer.h"
#include "runtime/kubernetes/pod_state.h"

namespace caisson::runtime::kubernetes {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr int64_t kRequestMs = 30'000;
constexpr int64_t kQuietMs = 100;  // how often a watch asks whether it should end
constexpr size_t kMaxReplyBytes = size_t{16} << 20;

// One request on a connection of its own.
class Exchange {
 public:
  explicit Exchange(Dialer& dialer) : dialer_(dialer) {}

  Status Send(const char* method, const std::string& path, const std::string& body) {
    CAISSON_TRY(stream_, dialer_.Connect(context_, kRequestMs));
    CAISSON_TRY(const std::string authorization, dialer_.Authorization());
    http::request<http::string_body> request;
    request.method_string(method);
    request.target(dialer_.access().path + path);
    request.version(11);
    request.set(http::field::host, dialer_.HostField());
    request.set(http::field::user_agent, std::string("caisson/") + kVersion);
    request.set(http::field::accept, "application/json");
    request.set(http::field::connection, "close");
    if (!authorization.empty()) request.set(http::field::authorization, authorization);
    if (!body.empty()) request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    Expire(kRequestMs);
    const error_code error = Complete(context_, [&](auto done) { http::async_write(*stream_, request, done); });
    if (error) return dialer_.Failed("send a request", error);
    return {};
  }

  Result<Reply> Receive() {
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxReplyBytes);
    Expire(kRequestMs);
    const error_code error = Complete(context_, [&](auto done) { http::async_read(*stream_, buffer_, parser, done); });
    if (error) return dialer_.Failed("receive an answer", error);
    Reply reply;
    reply.status = parser.get().result_int();
    const auto [first, last] = parser.get().equal_range(http::field::warning);
    for (auto field = first; field != last; ++field) reply.warnings.emplace_back(field->value());
    reply.body = std::move(parser.get().body());
    return reply;
  }

  Status Receive(const std::function<Status(std::string_view)>& take, const std::function<bool()>& stopped) {
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<uint64_t>::max());
    Expire(kRequestMs);
    error_code error = Complete(context_, [&](auto done) { http::async_read_header(*stream_, buffer_, parser, done); });
    if (error) return dialer_.Failed("receive an answer", error);
    char chunk[16384];
    std::string refusal;
    while (!parser.is_done()) {
      parser.get().body().data = chunk;
      parser.get().body().size = sizeof(chunk);
      CAISSON_TRY(const bool arrived, ReadSome(parser, stopped));
      if (!arrived) return {};
      const std::string_view bytes(chunk, sizeof(chunk) - parser.get().body().size);
      if (parser.get().result_int() == 200)
        CAISSON_TRY_VOID(take(bytes));
      else if (refusal.size() < kMaxReplyBytes)
        refusal.append(bytes);
    }
    if (parser.get().result_int() == 200) return {};
    return ErrorOf("GET", "watch", Reply{static_cast<int>(parser.get().result_int()), refusal, {}});
  }

 private:
  void Expire(int64_t ms) { beast::get_lowest_layer(*stream_).expires_after(std::chrono::milliseconds(ms)); }

  // Waits for as long as the server is silent; false when the caller stopped it.
  Result<bool> ReadSome(http::response_parser<http::buffer_body>& parser, const std::function<bool()>& stopped) {
    beast::tcp_stream& socket = beast::get_lowest_layer(*stream_);
    socket.expires_never();
    bool done = false;
    error_code error;
    http::async_read_some(*stream_, buffer_, parser, [&](error_code result, size_t) {
      done = true;
      error = result;
    });
    bool stop = false;
    while (!done) {
      context_.restart();
      context_.run_for(std::chrono::milliseconds(kQuietMs));
      if (done || stop || !stopped()) continue;
      stop = true;
      socket.close();
    }
    if (stop) return false;
    if (error && error != http::error::need_buffer) return dialer_.Failed("watch", error);
    return true;
  }

  Dialer& dialer_;
  boost::asio::io_context context_;
  std::unique_ptr<TlsStream> stream_;
  beast::flat_buffer buffer_;
};

}  // namespace

Result<std::unique_ptr<Api>> Api::Make(Access access) {
  std::string name_space = access.name_space;
  CAISSON_TRY(std::shared_ptr<Dialer> dialer, Dialer::Make(std::move(access)));
  return std::unique_ptr<Api>(new Api(std::move(dialer), std::move(name_space)));
}

Result<Reply> Api::Send(const char* method, const std::string& path, const std::string& body) const {
  Exchange exchange(*dialer_);
  CAISSON_TRY_VOID(exchange.Send(method, path, body));
  return exchange.Receive();
}

Result<Reply> Api::Request(const char* method, const std::string& path, const std::string& body) const {
  CAISSON_TRY(Reply reply, Send(method, path, body));
  if (reply.status < 200 || reply.status > 202) return ErrorOf(method, path, reply);
  return reply;
}

Status Api::Stream(const std::string& path, const std::function<Status(std::string_view)>& take,
                   const std::function<bool()>& stopped) const {
  Exchange exchange(*dialer_);
  CAISSON_TRY_VOID(exchange.Send("GET", path, ""));
  return exchange.Receive(take, stopped);
}

Error ErrorOf(const char* method, const std::string& path, const Reply& reply) {
  const nlohmann::json document = nlohmann::json::parse(reply.body, nullptr, false);
  std::string words;
  if (document.is_object() && document.contains("message") && document["message"].is_string())
    words = document["message"];
  if (words.empty()) words = reply.body;
  const std::string message = "the Kubernetes API server refused " + std::string(method) + " " +
                              path.substr(0, path.find('?')) + ": " + std::to_string(reply.status) + " " + Shown(words);
  switch (reply.status) {
    case 401:
      return Error::Denied(message + "; the credentials of the kubeconfig are expired or unknown");
    case 403:
      return Error::Denied(message + "; the Role of deploy/kubernetes/rbac.yaml has the rights that are needed");
    case 404:
      return Error::NotFound(message);
    case 409:
      return Error::Conflict(message);
    case 400:
    case 422:
      return Error::Invalid(message);
    default:
      return Error{ErrorKind::kSystem, 0, message};
  }
}

}  // namespace caisson::runtime::kubernetes
