#include "attest/key.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/unique_fd.h"
#include "linux/files.h"
#include "verify/digest.h"

namespace caisson::attest {
namespace {

constexpr size_t kSignatureBytes = 64;
constexpr size_t kMaxPemBytes = 16384;  // our files have a few hundred bytes; people add comments

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using OwnedBio = std::unique_ptr<BIO, FreeBio>;
struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using OwnedDigest = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

// Secret bytes: wiped when they are released.
struct Secret {
  Secret() = default;
  explicit Secret(std::string text) : bytes(std::move(text)) {}
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  std::string bytes;
};

// SECURITY: OpenSSL's configuration file can name libraries to load, and the environment can name the file. A caller
// who controls our environment could thereby load code into this process. So the file is not read; nothing here needs
// it.
void IgnoreConfiguration() { OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr); }

// A key file is read without a prompt for a passphrase.
int NoPassphrase(char*, int, int, void*) { return -1; }

OwnedBio ReaderOf(std::string_view pem) { return OwnedBio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

std::string ContentsOf(BIO* bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  return {text, static_cast<size_t>(size)};
}

std::string IdOf(EVP_PKEY* key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  CAISSON_CHECK(size > 0);
  std::string id = verify::Sha256Hex({reinterpret_cast<const char*>(der), static_cast<size_t>(size)});
  OPENSSL_free(der);
  return id;
}

Status ExpectEd25519(const OwnedKey& key, const char* what) {
  if (key == nullptr) return Error::Invalid(std::string("holds no ") + what);
  if (EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519)
    return Error::Invalid("is a key of another kind; only Ed25519 is accepted");
  return {};
}

Status WriteNew(const std::string& path, mode_t mode, std::string_view text) {
  // O_EXCL does not follow a symbolic link in the last component, dangling or not.
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file && errno == EEXIST) return Error::Invalid(path + ": exists already; a key is never overwritten");
  if (!file) return Error::Invalid(path + ": " + std::strerror(errno));
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size()) && ::fsync(file.get()) == 0) return {};
  const int cause = written < 0 ? errno : EIO;
  ::unlink(path.c_str());
  return Error::System(cause, "write " + path);
}

struct KeyFile {
  struct stat info {};
  Secret text;
};

Status ReadKeyFile(const std::string& path, KeyFile& file) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd || ::fstat(fd.get(), &file.info) != 0) return Error::Invalid(path + ": " + std::strerror(errno));
  if (!S_ISREG(file.info.st_mode)) return Error::Invalid(path + ": not a regular file");
  std::string& text = file.text.bytes;
  text.resize(kMaxPemBytes);
  const ssize_t size = ::pread(fd.get(), text.data(), text.size(), 0);
  if (size < 0) return Error::Invalid(path + ": " + std::strerror(errno));
  text.resize(static_cast<size_t>(size));
  return {};
}

}  // namespace

void FreeKey::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

Result<PublicKey> PublicKey::FromPem(std::string_view pem) {
  IgnoreConfiguration();
  OwnedKey key(PEM_read_bio_PUBKEY(ReaderOf(pem).get(), nullptr, NoPassphrase, nullptr));
  CAISSON_TRY_VOID(ExpectEd25519(key, "public key (PEM, BEGIN PUBLIC KEY)"));
  std::string id = IdOf(key.get());
  return PublicKey(std::move(key), std::move(id));
}

bool PublicKey::Verifies(std::string_view message, std::string_view signature) const {
  const OwnedDigest context(EVP_MD_CTX_new());
  CAISSON_CHECK(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1);
  return signature.size() == kSignatureBytes &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size()) == 1;
}

Result<PrivateKey> PrivateKey::FromPem(std::string_view pem) {
  IgnoreConfiguration();
  OwnedKey key(PEM_read_bio_PrivateKey(ReaderOf(pem).get(), nullptr, NoPassphrase, nullptr));
  CAISSON_TRY_VOID(ExpectEd25519(key, "private key without a passphrase (PEM, BEGIN PRIVATE KEY)"));
  std::string id = IdOf(key.get());
  return PrivateKey(std::move(key), std::move(id));
}

std::string PrivateKey::Sign(std::string_view message) const {
  const OwnedDigest context(EVP_MD_CTX_new());
  CAISSON_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1);
  std::string signature(kSignatureBytes, '\0');
  size_t size = signature.size();
  CAISSON_CHECK(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                               reinterpret_cast<const unsigned char*>(message.data()), message.size()) == 1 &&
                size == kSignatureBytes);
  return signature;
}

Result<std::string> GenerateKey(const std::string& path) {
  IgnoreConfiguration();
  const OwnedKey key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  // OpenSSL wipes a secure buffer when it is freed.
  const OwnedBio secret(BIO_new(BIO_s_secmem()));
  const OwnedBio open(BIO_new(BIO_s_mem()));
  if (key == nullptr ||
      PEM_write_bio_PKCS8PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
      PEM_write_bio_PUBKEY(open.get(), key.get()) != 1) {
    return Error::System(EIO, "make an Ed25519 key");
  }
  const Secret pem(ContentsOf(secret.get()));
  CAISSON_TRY_VOID(WriteNew(path, 0600, pem.bytes));
  if (Status written = WriteNew(path + ".pub", 0644, ContentsOf(open.get())); !written) {
    ::unlink(path.c_str());
    return std::move(written).error();
  }
  return IdOf(key.get());
}

Result<PrivateKey> LoadPrivateKey(const std::string& path) {
  KeyFile file;
  CAISSON_TRY_VOID(ReadKeyFile(path, file));
  if ((file.info.st_mode & 077) != 0)
    return Error::Invalid(path + ": users other than the owner can use this private key; run: chmod 600 " + path);
  if (file.info.st_uid != ::geteuid() && file.info.st_uid != 0) {
    return Error::Invalid(path + ": this private key belongs to uid " + std::to_string(file.info.st_uid) +
                          ", who could sign with it; run: chown " + std::to_string(::geteuid()) + " " + path);
  }
  Result<PrivateKey> key = PrivateKey::FromPem(file.text.bytes);
  if (!key) return std::move(key).error().In(path);
  return key;
}

Result<PublicKey> LoadPublicKey(const std::string& path) {
  KeyFile file;
  CAISSON_TRY_VOID(ReadKeyFile(path, file));
  Result<PublicKey> key = PublicKey::FromPem(file.text.bytes);
  if (!key) return std::move(key).error().In(path);
  return key;
}

}  // namespace caisson::attest
