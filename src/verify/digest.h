// SHA-256 in hex, and base64.
#pragma once

#include <string>
#include <string_view>

namespace caisson::verify {

std::string Sha256Hex(std::string_view bytes);

// A copy hashes on by itself, so the digest of what was added until now can be taken without ending the stream.
class Sha256Stream {
 public:
  Sha256Stream();
  void Add(std::string_view bytes);
  std::string FinishHex();

 private:
  alignas(8) unsigned char state_[128];
};

// RFC 4648 with padding; policy::DecodeBase64 reads it.
std::string EncodeBase64(std::string_view bytes);

}  // namespace caisson::verify
