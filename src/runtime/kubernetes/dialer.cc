#include "runtime/kubernetes/dialer.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "client/resolver.h"
#include "linux/files.h"

namespace caisson::runtime::kubernetes {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

asio::ip::tcp::endpoint EndpointOf(const client::Address& address) {
  asio::ip::tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), &address.storage, address.size);
  endpoint.resize(address.size);
  return endpoint;
}

}  // namespace

Result<std::shared_ptr<Dialer>> Dialer::Make(Access access) {
  std::shared_ptr<Dialer> dialer(new Dialer(std::move(access)));
  const Access& known = dialer->access_;
  asio::ssl::context& tls = dialer->tls_;
  error_code error;
  const auto use = [&](const char* what) -> Status {
    if (!error) return {};
    return Error::Invalid("runtime kubernetes: the " + std::string(what) + " cannot be used: " + error.message());
  };
  ::SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  tls.set_verify_mode(asio::ssl::verify_peer, error);
  if (known.authority.empty())
    tls.set_default_verify_paths(error);
  else
    tls.add_certificate_authority(asio::buffer(known.authority), error);
  CAISSON_TRY_VOID(use("certificate authority"));
  if (!known.certificate.empty()) {
    tls.use_certificate_chain(asio::buffer(known.certificate), error);
    CAISSON_TRY_VOID(use("client certificate"));
    tls.use_private_key(asio::buffer(known.key), asio::ssl::context::pem, error);
    CAISSON_TRY_VOID(use("client key"));
  }
  return dialer;
}

std::string Dialer::HostField() const {
  const std::string host = access_.host.find(':') != std::string::npos ? "[" + access_.host + "]" : access_.host;
  return host + ":" + access_.port;
}

Error Dialer::Failed(const std::string& what, const error_code& error) const {
  return Error{ErrorKind::kSystem, error.category() == boost::system::system_category() ? error.value() : 0,
               "the Kubernetes API server at " + HostField() + ": " + what + ": " + error.message()};
}

Result<std::string> Dialer::Authorization() const {
  if (access_.token.empty() && access_.token_file.empty()) return std::string();
  std::string token = access_.token;
  if (!access_.token_file.empty()) {
    CAISSON_TRY(token, linux_sys::ReadDocument(access_.token_file, size_t{64} << 10));
    while (!token.empty() && (token.back() == '\n' || token.back() == ' ')) token.pop_back();
  }
  for (const char letter : token) {
    if (letter <= ' ' || letter == 0x7f) return Error::Invalid("runtime kubernetes: the token is not one line of text");
  }
  return "Bearer " + token;
}

Result<std::unique_ptr<TlsStream>> Dialer::Connect(asio::io_context& context, int64_t within_ms) {
  int port = 0;
  std::from_chars(access_.port.data(), access_.port.data() + access_.port.size(), port);
  CAISSON_TRY(const std::vector<client::Address> addresses, client::Resolve(access_.host, port));
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const client::Address& address : addresses) endpoints.push_back(EndpointOf(address));
  auto stream = std::make_unique<TlsStream>(context, tls_);
  SSL* const tls = stream->native_handle();
  const std::string& name = access_.server_name.empty() ? access_.host : access_.server_name;
  // SECURITY: the certificate must be the server's: an address is held as an address, a name as a name.
  X509_VERIFY_PARAM* const rules = ::SSL_get0_param(tls);
  if (::X509_VERIFY_PARAM_set1_ip_asc(rules, name.c_str()) != 1 &&
      (::SSL_set1_host(tls, name.c_str()) != 1 || ::SSL_set_tlsext_host_name(tls, name.c_str()) != 1))
    return Error::Invalid("runtime kubernetes: " + name + " is no name that a certificate can have");
  boost::beast::tcp_stream& socket = boost::beast::get_lowest_layer(*stream);
  socket.expires_after(std::chrono::milliseconds(within_ms));
  error_code error = Complete(
      context, [&](auto done) { socket.async_connect(endpoints, [done](error_code e, auto&&) mutable { done(e); }); });
  if (error) return Failed("cannot be reached", error);
  ::fcntl(socket.socket().native_handle(), F_SETFD, FD_CLOEXEC);
  socket.socket().set_option(asio::ip::tcp::no_delay(true), error);
  ::ERR_clear_error();
  error = Complete(context, [&](auto done) { stream->async_handshake(asio::ssl::stream_base::client, done); });
  if (const long verdict = ::SSL_get_verify_result(tls); error && verdict != X509_V_OK)
    return Error{ErrorKind::kSystem, 0,
                 "the Kubernetes API server at " + HostField() + ": its certificate is refused: " +
                     ::X509_verify_cert_error_string(verdict) + "; check certificate-authority in the kubeconfig"};
  if (error) return Failed("TLS", error);
  return stream;
}

}  // namespace caisson::runtime::kubernetes
