// The file of bearer tokens:
//
//   version: 1
//   tokens:
//     - name: ci                       # the caller's subject becomes token:ci
//       tenant: course-7
//       rights: [submit, read]         # of submit, read, approve, admin, metrics
//       sha256: 9f86d081884c7d65…      # of the token; the token itself is not stored
//       expires: 2030-01-31T00:00:00Z  # optional
//
// A token is 256 random bits in hex or base64url (openssl rand -hex 32). So one round of SHA-256 is enough where
// passwords need a slow hash: a slow hash makes guessing expensive, and 2^256 tokens cannot be guessed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "service/service.h"

namespace caisson::service::http {

struct Token {
  std::string sha256;  // lower-case hex
  Caller caller;
  int64_t expires_ms = 0;  // 0: never
};

Result<std::vector<Token>> ReadTokens(std::string_view text, const std::string& name);
// Refuses a file that its group or others can read or write, or that is neither ours nor root's.
Result<std::vector<Token>> LoadTokens(const std::string& path);

// The token's entry, or null. Always compares all entries and all bytes.
const Token* FindToken(const std::vector<Token>& tokens, std::string_view token, int64_t now_ms);

}  // namespace caisson::service::http
