#include "egress/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace caisson::egress {

namespace {

using BioPtr = std::unique_ptr<BIO, Freer<BIO_free_all>>;

constexpr long kDay = 24 * 3600;
constexpr long kLifetimeDays = 30;
constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
constexpr const char* kRootPlaces[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                       "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

Error Failed(const char* what) {
  char text[256] = "";
  if (const unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return Error::Unsupported(std::string(what) + ": " + text);
}

// A BIO over a socket by recv and send: the filter of this process has neither read nor write.
int SocketRead(BIO* bio, char* buffer, int size) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  ssize_t got;
  do {
    got = ::recv(fd, buffer, static_cast<size_t>(size), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

int SocketWrite(BIO* bio, const char* bytes, int size) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  ssize_t sent;
  do {
    sent = ::send(fd, bytes, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long SocketControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_read(made, SocketRead);
    BIO_meth_set_write(made, SocketWrite);
    BIO_meth_set_ctrl(made, SocketControl);
    return made;
  }();
  return method;
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& text) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, text.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// A certificate without extensions and signature.
CertificatePtr BeginCertificate(EVP_PKEY* key, const char* common_name, X509* issuer) {
  CertificatePtr certificate(X509_new());
  if (!certificate) return nullptr;
  X509_set_version(certificate.get(), X509_VERSION_3);
  // A random serial number: programs keep certificates of one issuer apart by it.
  BIGNUM* number = BN_new();
  if (number == nullptr || BN_rand(number, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get())) == nullptr) {
    BN_free(number);
    return nullptr;
  }
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kLifetimeDays * kDay);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto add = [name](const char* field, const char* text) {
    X509_NAME_add_entry_by_txt(name, field, MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text), -1, -1, 0);
  };
  add("O", "Caisson");
  if (common_name != nullptr) add("CN", common_name);
  X509_set_issuer_name(certificate.get(), issuer != nullptr ? X509_get_subject_name(issuer) : name);
  if (X509_set_pubkey(certificate.get(), key) != 1) return nullptr;
  return certificate;
}

int ChooseHttp11(SSL*, const unsigned char** out, unsigned char* size, const unsigned char* in, unsigned in_size,
                 void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, size, kHttp11, sizeof(kHttp11), in, in_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

SslContextPtr MakeContext(const SSL_METHOD* method) {
  SslContextPtr context(SSL_CTX_new(method));
  if (!context) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  return context;
}

bool AddPem(X509_STORE* store, std::string_view pem) {
  if (pem.size() > INT_MAX) return false;
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  size_t count = 0;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    count += X509_STORE_add_cert(store, certificate) == 1 ? 1 : 0;
    X509_free(certificate);
  }
  ERR_clear_error();
  return count > 0;
}

SslContextPtr MakeClientContext() {
  SslContextPtr context = MakeContext(TLS_client_method());
  if (!context) return nullptr;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(context.get(), kHttp11, sizeof(kHttp11));
  for (const char* place : kRootPlaces) {
    if (::access(place, R_OK) == 0 && X509_STORE_load_file(SSL_CTX_get_cert_store(context.get()), place) == 1) break;
  }
  ERR_clear_error();
  return context;
}

// Over `socket`, which the caller keeps open for as long.
SslPtr MakeSsl(SSL_CTX* context, int socket) {
  SslPtr ssl(SSL_new(context));
  BIO* bio = BIO_new(SocketMethod());
  if (!ssl || bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  return ssl;
}

}  // namespace

TlsStream::State TlsStream::StateOf(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  switch (error) {
    case SSL_ERROR_NONE:
      return State::kDone;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return State::kWait;
    case SSL_ERROR_ZERO_RETURN:
      return State::kEnd;
    default:
      return ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING ? State::kCut : State::kFailed;
  }
}

TlsStream::State TlsStream::Handshake() {
  if (!ssl_) return State::kFailed;
  if (SSL_is_init_finished(ssl_.get()) != 0) return State::kDone;
  const State state = StateOf(SSL_do_handshake(ssl_.get()));
  return state == State::kEnd || state == State::kCut ? State::kFailed : state;
}

TlsStream::State TlsStream::Read(char* buffer, size_t size, size_t& got) {
  got = 0;
  return StateOf(SSL_read_ex(ssl_.get(), buffer, size, &got));
}

TlsStream::State TlsStream::Write(std::string_view bytes, size_t& written) {
  written = 0;
  return StateOf(SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written));
}

void TlsStream::End() {
  if (ssl_) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

bool TlsStream::has_bad_certificate() const { return ssl_ && SSL_get_verify_result(ssl_.get()) != X509_V_OK; }

Result<std::unique_ptr<Tls>> Tls::Make(const std::vector<std::string>& hosts) {
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, nullptr);
  auto tls = std::make_unique<Tls>();
  const KeyPtr authority_key(EVP_EC_gen("P-256"));
  if (!authority_key) return Failed("make a key");
  const CertificatePtr authority = BeginCertificate(authority_key.get(), "Caisson sandbox", nullptr);
  std::string constraints = "critical";
  for (const std::string& host : hosts) constraints += ",permitted;DNS:" + host;
  if (!authority ||
      !AddExtension(authority.get(), authority.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(authority.get(), authority.get(), NID_key_usage, "critical,keyCertSign") ||
      !AddExtension(authority.get(), authority.get(), NID_name_constraints, constraints) ||
      !AddExtension(authority.get(), authority.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(authority.get(), authority_key.get(), EVP_sha256()) == 0)
    return Failed("make an authority");
  for (const std::string& host : hosts) {
    Identity& identity = tls->identities_[host];
    if (identity.certificate) continue;
    identity.key.reset(EVP_EC_gen("P-256"));
    identity.certificate = BeginCertificate(identity.key.get(), nullptr, authority.get());
    X509* certificate = identity.certificate.get();
    if (certificate == nullptr ||
        !AddExtension(certificate, authority.get(), NID_basic_constraints, "critical,CA:FALSE") ||
        !AddExtension(certificate, authority.get(), NID_key_usage, "critical,digitalSignature") ||
        !AddExtension(certificate, authority.get(), NID_ext_key_usage, "serverAuth") ||
        !AddExtension(certificate, authority.get(), NID_subject_alt_name, "DNS:" + host) ||
        !AddExtension(certificate, authority.get(), NID_subject_key_identifier, "hash") ||
        !AddExtension(certificate, authority.get(), NID_authority_key_identifier, "keyid:always") ||
        X509_sign(certificate, authority_key.get(), EVP_sha256()) == 0)
      return Failed("make a certificate");
  }
  tls->server_ = MakeContext(TLS_server_method());
  if (!tls->server_) return Failed("prepare TLS");
  SSL_CTX_set_alpn_select_cb(tls->server_.get(), ChooseHttp11, nullptr);
  const BioPtr text(BIO_new(BIO_s_mem()));
  char* bytes = nullptr;
  if (PEM_write_bio_X509(text.get(), authority.get()) != 1) return Failed("write a certificate");
  const long size = BIO_get_mem_data(text.get(), &bytes);
  tls->authority_pem_.assign(bytes, static_cast<size_t>(size));
  return tls;
}

Status Tls::Trust(const std::map<std::string, std::string>& extra) {
  client_ = MakeClientContext();
  if (!client_) return Failed("prepare TLS");
  for (const auto& [host, pem] : extra) {
    SslContextPtr context = MakeClientContext();
    if (!context || !AddPem(SSL_CTX_get_cert_store(context.get()), pem))
      return Error::Invalid("the certificates for " + host + " cannot be read");
    extra_clients_[host] = std::move(context);
  }
  return {};
}

TlsStream Tls::Accept(const std::string& host, int socket) const {
  const auto found = identities_.find(host);
  if (found == identities_.end()) return TlsStream();
  SslPtr ssl = MakeSsl(server_.get(), socket);
  if (!ssl || SSL_use_certificate(ssl.get(), found->second.certificate.get()) != 1 ||
      SSL_use_PrivateKey(ssl.get(), found->second.key.get()) != 1)
    return TlsStream();
  SSL_set_accept_state(ssl.get());
  return TlsStream(std::move(ssl));
}

TlsStream Tls::Connect(const std::string& host, int socket) const {
  const auto found = extra_clients_.find(host);
  SSL_CTX* context = found == extra_clients_.end() ? client_.get() : found->second.get();
  SslPtr ssl = MakeSsl(context, socket);
  if (!ssl) return TlsStream();
  SSL_set_hostflags(ssl.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (SSL_set_tlsext_host_name(ssl.get(), host.c_str()) != 1 || SSL_set1_host(ssl.get(), host.c_str()) != 1)
    return TlsStream();
  SSL_set_connect_state(ssl.get());
  return TlsStream(std::move(ssl));
}

}  // namespace caisson::egress
