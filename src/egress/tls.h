// TLS for the few hosts that a credential is bound to: egress is the server for the program inside and the client of
// the real server. Everything is made before confinement; afterwards no file is read.
//
// SECURITY: the authority is made for one sandbox, its key never leaves this process, and its certificate may vouch
// only for the bound hosts (name constraints), so a program inside that trusts it is not exposed to anything else.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::egress {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using SslPtr = std::unique_ptr<SSL, Freer<SSL_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;
using CertificatePtr = std::unique_ptr<X509, Freer<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

// One end of a TLS connection over a socket that does not block.
class TlsStream {
 public:
  TlsStream() = default;
  explicit TlsStream(SslPtr ssl) : ssl_(std::move(ssl)) {}

  enum class State : uint8_t { kDone, kWait, kEnd, kCut, kFailed };
  // kCut: the peer closed the socket without saying that it ends.
  State Handshake();
  State Read(char* buffer, size_t size, size_t& got);
  State Write(std::string_view bytes, size_t& written);
  // Says that nothing more follows.
  void End();

  bool has_bad_certificate() const;

 private:
  State StateOf(int result);
  SslPtr ssl_;
};

class Tls {
 public:
  // Makes the authority and a certificate for each host.
  static Result<std::unique_ptr<Tls>> Make(const std::vector<std::string>& hosts);

  const std::string& authority_pem() const { return authority_pem_; }

  // Reads the authorities that this machine trusts. `extra` are PEM texts by host, trusted for that host besides.
  Status Trust(const std::map<std::string, std::string>& extra);

  // The end that the program inside talks to, in the name of `host`.
  TlsStream Accept(const std::string& host, int socket) const;
  // The end that talks to the real server, whose certificate must be for `host`.
  TlsStream Connect(const std::string& host, int socket) const;

 private:
  struct Identity {
    CertificatePtr certificate;
    KeyPtr key;
  };
  std::string authority_pem_;
  std::map<std::string, Identity> identities_;
  SslContextPtr server_;
  SslContextPtr client_;
  std::map<std::string, SslContextPtr> extra_clients_;
};

}  // namespace caisson::egress
