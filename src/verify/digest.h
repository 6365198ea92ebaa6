// SHA-256, hex.
#pragma once

#include <string>
#include <string_view>

namespace caisson::verify {

std::string Sha256Hex(std::string_view bytes);

class Sha256Stream {
 public:
  Sha256Stream();
  void Add(std::string_view bytes);
  std::string FinishHex();

 private:
  alignas(8) unsigned char state_[128];
};

}  // namespace caisson::verify
