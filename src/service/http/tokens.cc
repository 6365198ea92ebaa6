#include "service/http/tokens.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "linux/files.h"
#include "policy/syntax.h"
#include "policy/yaml_document.h"
#include "policy/yaml_fields.h"
#include "verify/digest.h"

namespace caisson::service::http {

namespace {

using policy::Fault;
using policy::YamlFields;
using policy::YamlKey;
using policy::YamlNode;

Fault FaultInName(const std::string& text) {
  if (policy::IsWord(text, "._-", 64)) return std::nullopt;
  return "is not 1 to 64 letters, digits, dots, underscores and hyphens";
}

Fault FaultInSha256(const std::string& text) {
  if (policy::IsSha256Hex(text)) return std::nullopt;
  return "is not a SHA-256: 64 hexadecimal digits";
}

Status ReadToken(const YamlFields& fields, const YamlNode& node, std::vector<Token>& tokens) {
  Token token;
  std::string name, expires;
  std::vector<std::string> rights;
  const std::vector<YamlKey> keys = {
      {"name", [&](const YamlNode& value) { return fields.Checked(value, name, FaultInName); }},
      {"tenant", [&](const YamlNode& value) { return fields.Checked(value, token.caller.tenant, FaultInName); }},
      {"rights", [&](const YamlNode& value) { return fields.Choices(value, rights, kRightNames); }},
      {"sha256", [&](const YamlNode& value) { return fields.Checked(value, token.sha256, FaultInSha256); }},
      {"expires", [&](const YamlNode& value) { return fields.Checked(value, expires, policy::FaultInTimestamp); }}};
  CAISSON_TRY_VOID(fields.Map(node, keys));
  if (name.empty() || token.caller.tenant.empty() || token.sha256.empty() || rights.empty())
    return fields.At(node, "a token needs name, tenant, rights and sha256");
  token.sha256 = policy::ToLowerAscii(std::move(token.sha256));
  if (!expires.empty()) token.expires_ms = policy::SecondsSinceEpoch(expires) * 1000;
  token.caller.subject = "token:" + name;
  for (const std::string& right : rights) {
    const auto* found = std::find(kRightNames.begin(), kRightNames.end(), right);
    token.caller.rights.insert(static_cast<Right>(found - kRightNames.begin()));
  }
  for (const Token& other : tokens) {
    if (other.caller.subject == token.caller.subject) return fields.At(node, "the name " + name + " came before");
    if (other.sha256 == token.sha256) return fields.At(node, "the same token is " + other.caller.subject + "'s");
  }
  tokens.push_back(std::move(token));
  return {};
}

}  // namespace

Result<std::vector<Token>> ReadTokens(std::string_view text, const std::string& name) {
  CAISSON_TRY(const YamlNode document, policy::ReadYaml(text, name));
  const YamlFields fields(name);
  std::vector<Token> tokens;
  bool version = false;
  const std::vector<YamlKey> keys = {
      {"version",
       [&](const YamlNode& value) {
         version = true;
         return fields.Version(value);
       }},
      {"tokens", [&](const YamlNode& value) {
         return fields.Items(value, [&](const YamlNode& item) { return ReadToken(fields, item, tokens); });
       }}};
  CAISSON_TRY_VOID(fields.Map(document, keys));
  if (!version) return fields.At(document, "version: 1 is missing");
  return tokens;
}

Result<std::vector<Token>> LoadTokens(const std::string& path) {
  const auto fault = [&](const std::string& what) { return Error::Invalid("tokens: " + path + ": " + what); };
  Result<UniqueFd> file = linux_sys::Open(path, O_RDONLY | O_NONBLOCK);
  if (!file) return std::move(file).error().In("tokens");
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return Error::System(errno, "tokens: stat " + path);
  if (!S_ISREG(info.st_mode)) return fault("not a regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) return fault("neither ours nor root's");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) return fault("others can open it; run: chmod 600 " + path);
  const std::string self = "/proc/self/fd/" + std::to_string(file->get());
  CAISSON_TRY(const std::string text, linux_sys::ReadSmallFile(AT_FDCWD, self.c_str(), policy::kMaxYamlBytes + 1));
  return ReadTokens(text, path);
}

const Token* FindToken(const std::vector<Token>& tokens, std::string_view token, int64_t now_ms) {
  const std::string digest = verify::Sha256Hex(token);
  const Token* found = nullptr;
  for (const Token& entry : tokens) {
    // SECURITY: no early exit, so the duration of a refusal reveals nothing about the guess.
    if (::CRYPTO_memcmp(entry.sha256.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found != nullptr && found->expires_ms != 0 && found->expires_ms <= now_ms) return nullptr;
  return found;
}

}  // namespace caisson::service::http
