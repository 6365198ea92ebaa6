// TLS connections to the API server. Boost.Beast and OpenSSL are seen by the files that include this header alone.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "runtime/kubernetes/settings.h"

namespace caisson::runtime::kubernetes {

using TlsStream = boost::beast::ssl_stream<boost::beast::tcp_stream>;

// Thread: any; connections belong to the thread that runs their context.
class Dialer {
 public:
  static Result<std::shared_ptr<Dialer>> Make(Access access);

  const Access& access() const { return access_; }
  // Runs `context` until the connection stands.
  Result<std::unique_ptr<TlsStream>> Connect(boost::asio::io_context& context, int64_t within_ms);
  // The value of the Authorization field; empty where a certificate is enough.
  Result<std::string> Authorization() const;
  std::string HostField() const;
  // The error with the server's address in front of it.
  Error Failed(const std::string& what, const boost::system::error_code& error) const;

 private:
  explicit Dialer(Access access) : access_(std::move(access)), tls_(boost::asio::ssl::context::tls_client) {}

  Access access_;
  boost::asio::ssl::context tls_;
};

// Runs one asynchronous operation to its end. `start` gets the handler to pass.
template <typename Start>
boost::system::error_code Complete(boost::asio::io_context& context, Start start) {
  boost::system::error_code result;
  start([&result](boost::system::error_code error, auto&&...) { result = error; });
  context.restart();
  context.run();
  return result;
}

}  // namespace caisson::runtime::kubernetes
