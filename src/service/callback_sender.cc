#include "service/callback_sender.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "base/words.h"
#include "linux/files.h"

namespace caisson::service {
namespace {

constexpr size_t kMaxAnswerHead = size_t{16} << 10;
constexpr int64_t kPieceBytes = int64_t{64} << 10;

struct Url {
  bool tls = false;
  std::string host;  // without brackets
  std::string port;
  std::string authority;
  std::string target;
};

// Splits a URL whose syntax the request's reader has already checked.
Result<Url> Split(const std::string& text) {
  Url url;
  url.tls = text.rfind("https://", 0) == 0;
  const size_t begin = text.find("://");
  if (begin == std::string::npos) return Error::Invalid("callback_url: no scheme");
  const size_t path = text.find_first_of("/?", begin + 3);
  url.authority = text.substr(begin + 3, path == std::string::npos ? path : path - begin - 3);
  url.target = path == std::string::npos ? "/" : text[path] == '?' ? "/" + text.substr(path) : text.substr(path);
  url.target = url.target.substr(0, url.target.find('#'));
  url.port = url.tls ? "443" : "80";
  const size_t bracket = url.authority.rfind(']');
  const size_t colon = url.authority.rfind(':');
  url.host = url.authority;
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    url.host = url.authority.substr(0, colon);
    url.port = url.authority.substr(colon + 1);
  }
  if (!url.host.empty() && url.host.front() == '[') url.host = url.host.substr(1, url.host.size() - 2);
  return url;
}

// A connected socket or TLS over it, with one deadline for all it does.
class Connection {
 public:
  explicit Connection(int64_t deadline_ms) : deadline_ms_(deadline_ms) {}

  Status Open(const Url& url, const network::AddressRules& rules) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int failure = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
    if (failure != 0)
      return Error{ErrorKind::kSystem, 0, "resolve " + Quoted(url.host) + ": " + ::gai_strerror(failure)};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      // Every address must be allowed: a host with one internal address is refused.
      if (!rules.Allows(one->ai_addr))
        return Error::Denied("callback to " + Quoted(url.host) +
                             ": it has an address that is not public; the operator "
                             "can allow it with callback_allow");
    }
    Status last = Error::System(EHOSTUNREACH, "connect to " + Quoted(url.host));
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      last = Connect(one);
      if (last) break;
    }
    CAISSON_TRY_VOID(last);
    return url.tls ? StartTls(url) : Status();
  }

  Status Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count =
          tls_ ? ::SSL_write(tls_.get(), bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)))
               : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
        continue;
      }
      CAISSON_TRY_VOID(AwaitAfter(static_cast<int>(count), POLLOUT));
    }
    return {};
  }

  // Reads some bytes; empty at the end.
  Result<std::string> Read() {
    char buffer[4096];
    for (;;) {
      const ssize_t count =
          tls_ ? ::SSL_read(tls_.get(), buffer, sizeof(buffer)) : ::recv(socket_.get(), buffer, sizeof(buffer), 0);
      if (count > 0) return std::string(buffer, static_cast<size_t>(count));
      if (count == 0 && !tls_) return std::string();
      if (tls_ && ::SSL_get_error(tls_.get(), static_cast<int>(count)) == SSL_ERROR_ZERO_RETURN) return std::string();
      CAISSON_TRY_VOID(AwaitAfter(static_cast<int>(count), POLLIN));
    }
  }

 private:
  Status Connect(const addrinfo* address) {
    socket_ = UniqueFd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) return Error::System(errno, "make a socket");
    if (::connect(socket_.get(), address->ai_addr, address->ai_addrlen) == 0) return {};
    if (errno != EINPROGRESS) return Error::System(errno, "connect");
    CAISSON_TRY_VOID(Await(POLLOUT));
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? Status() : Error::System(error, "connect");
  }

  Status StartTls(const Url& url) {
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    ::SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    ::SSL_CTX_set_default_verify_paths(context_.get());
    tls_.reset(::SSL_new(context_.get()));
    ::SSL_set_tlsext_host_name(tls_.get(), url.host.c_str());
    ::SSL_set1_host(tls_.get(), url.host.c_str());
    ::SSL_set_fd(tls_.get(), socket_.get());
    for (;;) {
      const int done = ::SSL_connect(tls_.get());
      if (done == 1) return {};
      Status waited = AwaitAfter(done, POLLIN);
      if (!waited) return std::move(waited).error().In("TLS with " + Quoted(url.host));
    }
  }

  Status AwaitAfter(int result, short plain) {
    if (!tls_) {
      if (errno == EINTR) return {};
      return errno == EAGAIN ? Await(plain) : Error::System(errno, "talk to the callback's server");
    }
    switch (::SSL_get_error(tls_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return Await(POLLIN);
      case SSL_ERROR_WANT_WRITE:
        return Await(POLLOUT);
      default:
        return Error::System(EPROTO, "TLS failed");
    }
  }

  Status Await(short events) {
    const int64_t left = deadline_ms_ - MonotonicNanos() / 1'000'000;
    pollfd poll{socket_.get(), events, 0};
    if (left <= 0 || ::poll(&poll, 1, static_cast<int>(left)) == 0)
      return Error::System(ETIMEDOUT, "the callback's server took too long");
    return {};
  }

  struct FreeTls {
    void operator()(SSL* tls) const { ::SSL_free(tls); }
    void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
  };
  const int64_t deadline_ms_;
  UniqueFd socket_;
  std::unique_ptr<SSL_CTX, FreeTls> context_;
  std::unique_ptr<SSL, FreeTls> tls_;
};

Result<int> ReadStatus(Connection& connection) {
  std::string head;
  while (head.find("\r\n") == std::string::npos) {
    if (head.size() > kMaxAnswerHead) return Error::System(EPROTO, "the callback's server did not answer with HTTP");
    CAISSON_TRY(const std::string bytes, connection.Read());
    if (bytes.empty()) return Error::System(EPROTO, "the callback's server hung up");
    head += bytes;
  }
  const bool status_line =
      head.size() >= 12 && head.rfind("HTTP/1.", 0) == 0 && head[8] == ' ' &&
      std::all_of(head.begin() + 9, head.begin() + 12, [](char c) { return c >= '0' && c <= '9'; });
  if (!status_line) return Error::System(EPROTO, "the callback's server did not answer with HTTP");
  return std::stoi(head.substr(9, 3));
}

}  // namespace

namespace {

// Calls `each` with the document, piece by piece.
Status ForEachPiece(const Document& document, const std::function<Status(std::string_view)>& each) {
  if (!document.file) return each(document.text);
  for (int64_t at = 0; at < document.bytes; at += kPieceBytes) {
    CAISSON_TRY(const std::string piece,
                linux_sys::ReadAt(document.file.get(), at, std::min(document.bytes - at, kPieceBytes)));
    CAISSON_TRY_VOID(each(piece));
  }
  return {};
}

}  // namespace

Result<std::string> CallbackSignature(const std::string& secret, int64_t unix_seconds, const Document& body) {
  const std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)> key(
      ::EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, nullptr, reinterpret_cast<const unsigned char*>(secret.data()),
                                     secret.size()),
      ::EVP_PKEY_free);
  const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free);
  unsigned char mac[EVP_MAX_MD_SIZE];
  size_t size = sizeof(mac);
  const auto add = [&](std::string_view bytes) -> Status {
    if (::EVP_DigestSignUpdate(context.get(), bytes.data(), bytes.size()) == 1) return {};
    return Error::System(EPROTO, "sign a callback");
  };
  if (::EVP_DigestSignInit(context.get(), nullptr, ::EVP_sha256(), nullptr, key.get()) != 1)
    return Error::System(EPROTO, "sign a callback");
  CAISSON_TRY_VOID(add(std::to_string(unix_seconds) + "."));
  CAISSON_TRY_VOID(ForEachPiece(body, add));
  if (::EVP_DigestSignFinal(context.get(), mac, &size) != 1) return Error::System(EPROTO, "sign a callback");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < size; ++i) {
    hex.push_back(kDigits[mac[i] >> 4]);
    hex.push_back(kDigits[mac[i] & 15]);
  }
  return "t=" + std::to_string(unix_seconds) + ",v1=" + hex;
}

Result<int> CallbackSender::Send(const Delivery& delivery, int64_t timeout_ms) const {
  const Document& body = delivery.body;
  CAISSON_TRY(const std::string signature, CallbackSignature(secret_, UnixMillis() / 1'000, body));
  CAISSON_TRY(const Url url, Split(delivery.url));
  Connection connection(MonotonicNanos() / 1'000'000 + timeout_ms);
  CAISSON_TRY_VOID(connection.Open(url, rules_));
  std::string request =
      "POST " + url.target + " HTTP/1.1\r\nHost: " + url.authority + "\r\nUser-Agent: caisson/" + kVersion +
      "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.bytes) +
      "\r\nCaisson-Job: " + delivery.job_id + "\r\nCaisson-Delivery: " + std::to_string(delivery.attempt) +
      "\r\nCaisson-Signature: " + signature + "\r\n\r\n";
  CAISSON_TRY_VOID(connection.Write(request));
  CAISSON_TRY_VOID(ForEachPiece(body, [&](std::string_view piece) { return connection.Write(piece); }));
  return ReadStatus(connection);
}

}  // namespace caisson::service
