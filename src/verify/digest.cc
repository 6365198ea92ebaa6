// Uses the low-level functions, although OpenSSL recommends EVP for new code: EVP first loads providers and reads a
// configuration file, which takes longer than hashing most inputs here.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "verify/digest.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <new>

namespace caisson::verify {

namespace {

std::string Hex(const unsigned char* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < size; ++i) {
    hex.push_back(kDigits[bytes[i] >> 4]);
    hex.push_back(kDigits[bytes[i] & 15]);
  }
  return hex;
}

}  // namespace

std::string Sha256Hex(std::string_view bytes) {
  Sha256Stream stream;
  stream.Add(bytes);
  return stream.FinishHex();
}

Sha256Stream::Sha256Stream() {
  static_assert(sizeof(SHA256_CTX) <= sizeof(state_));
  SHA256_Init(new (state_) SHA256_CTX);
}

void Sha256Stream::Add(std::string_view bytes) {
  SHA256_Update(std::launder(reinterpret_cast<SHA256_CTX*>(state_)), bytes.data(), bytes.size());
}

std::string Sha256Stream::FinishHex() {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, std::launder(reinterpret_cast<SHA256_CTX*>(state_)));
  return Hex(digest, sizeof(digest));
}

std::string EncodeBase64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and a NUL
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

}  // namespace caisson::verify
