// Ed25519 keys (RFC 8032) in common file formats: PKCS#8 and SubjectPublicKeyInfo, both PEM, as `openssl pkey` writes
// them. A key is named by its id, the SHA-256 of its SubjectPublicKeyInfo in DER.
//
// Keys are immutable: any number of threads may sign and verify with one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY: its headers stay out of ours

namespace caisson::attest {

struct FreeKey {
  void operator()(evp_pkey_st* key) const;
};
using OwnedKey = std::unique_ptr<evp_pkey_st, FreeKey>;

class PublicKey {
 public:
  static Result<PublicKey> FromPem(std::string_view pem);

  const std::string& id() const { return id_; }  // 64 hexadecimal digits in lower case
  bool Verifies(std::string_view message, std::string_view signature) const;

 private:
  PublicKey(OwnedKey key, std::string id) : key_(std::move(key)), id_(std::move(id)) {}

  OwnedKey key_;
  std::string id_;
};

class PrivateKey {
 public:
  static Result<PrivateKey> FromPem(std::string_view pem);

  const std::string& id() const { return id_; }      // that of its public half
  std::string Sign(std::string_view message) const;  // 64 bytes; equal messages give equal signatures

 private:
  PrivateKey(OwnedKey key, std::string id) : key_(std::move(key)), id_(std::move(id)) {}

  OwnedKey key_;
  std::string id_;
};

// Creates a key: the private half in `path`, readable by its owner only, the public half in `path`.pub. Neither may
// exist, not even as a link; on an error neither is left behind. Returns the id.
Result<std::string> GenerateKey(const std::string& path);

// SECURITY: a process that can read the file can sign in our name. A file that group or others can read, or that
// belongs to a user other than ours and root, is refused; a warning would not be enough.
Result<PrivateKey> LoadPrivateKey(const std::string& path);
Result<PublicKey> LoadPublicKey(const std::string& path);

}  // namespace caisson::attest
