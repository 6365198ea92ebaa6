#include "policy/credentials.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/words.h"
#include "network/name.h"
#include "network/rule.h"
#include "policy/profile_store.h"
#include "policy/syntax.h"
#include "policy/yaml_document.h"
#include "policy/yaml_fields.h"

namespace caisson::policy {

namespace {

constexpr size_t kMaxCredentials = 32;  // of one file
constexpr size_t kMaxTextBytes = 1000;
constexpr std::string_view kSecretMark = "{secret}";
constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";

bool IsToken(std::string_view text) { return IsWord(text, kTokenMarks, 128); }

Fault FaultInHost(const std::string& host) {
  const Result<network::Host> parsed = network::Host::Parse(host);
  if (!parsed) return parsed.error().message;
  if (parsed->address) return "is an address; a credential is bound to a name";
  return parsed->name == host ? Fault() : Fault("must be written as " + parsed->name);
}

Fault FaultInPrefix(const std::string& path) {
  if (path.empty() || path[0] != '/') return "must begin with a slash";
  if (path.size() > kMaxTextBytes) return "is longer than 1000 bytes";
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!plain || path.find_first_of("?#%\\") != std::string::npos || path.find("//") != std::string::npos ||
      path.find("/.") != std::string::npos)
    return "must be a plain path: no '?', '#', '%', backslash, empty or dotted components";
  return std::nullopt;
}

Fault FaultInHeader(const std::string& header) {
  if (!IsToken(header)) return "is no name of a header";
  std::string lower = header;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* framing :
       {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}) {
    if (lower == framing) return "decides where a request goes or ends; it cannot carry a secret";
  }
  return std::nullopt;
}

Fault FaultInValue(const std::string& value) {
  if (value.size() > kMaxTextBytes) return "is longer than 1000 bytes";
  const size_t mark = value.find(kSecretMark);
  if (mark == std::string::npos || value.find(kSecretMark, mark + 1) != std::string::npos)
    return "must contain {secret} once";
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c < 0x7f; })
             ? Fault()
             : Fault("has characters that no header can have");
}

Fault FaultInVariable(const std::string& name) { return IsEnvName(name) ? Fault() : Fault("is no variable's name"); }

Fault FaultInMethod(const std::string& method) {
  return !method.empty() && method.size() <= 32 &&
                 method.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == method.npos
             ? Fault()
             : Fault("is no method");
}

class CredentialsReader {
 public:
  explicit CredentialsReader(const std::string& file) : fields_(file) {}

  Result<std::vector<Credential>> Read(const YamlNode& document) {
    static constexpr const char* kKinds[] = {"credentials"};
    size_t kind = 1;
    const YamlKey keys[] = {
        {"version", [&](const YamlNode& node) { return fields_.Version(node); }},
        {"kind", [&](const YamlNode& node) { return fields_.Choose(node, kKinds, kind); }},
        {"credentials",
         [&](const YamlNode& node) -> Status {
           if (node.kind != YamlNode::Kind::kMap) return fields_.At(node, "must be a map of credentials");
           if (node.fields.size() > kMaxCredentials) return fields_.At(node, "too many credentials");
           for (const YamlField& field : node.fields) CAISSON_TRY_VOID(One(field));
           return {};
         }},
    };
    CAISSON_TRY_VOID(fields_.Map(document, keys));
    if (kind != 0) return fields_.At(document, "needs kind: credentials");
    return std::move(credentials_);
  }

 private:
  Status One(const YamlField& field) {
    Credential& one = credentials_.emplace_back();
    one.name = field.key.text;
    if (const Fault fault = FaultInCredentialName(one.name))
      return fields_.At(field.key, Quoted(one.name) + " " + *fault);
    std::string port = "443";
    const auto text = [this](std::string& into, Fault (*check)(const std::string&)) {
      return [this, &into, check](const YamlNode& node) { return fields_.Checked(node, into, check); };
    };
    const YamlKey keys[] = {
        {"host", text(one.host, FaultInHost)},
        {"port", text(port, [](const std::string& number) { return FaultInPort(number); })},
        {"path", text(one.path, FaultInPrefix)},
        {"header", text(one.header, FaultInHeader)},
        {"value", text(one.value, FaultInValue)},
        {"environment", text(one.environment, FaultInVariable)},
        {"secret", [&](const YamlNode& node) { return Secret(node, one.secret); }},
        {"methods", [&](const YamlNode& node) { return fields_.Texts(node, one.methods, FaultInMethod); }},
        {"paths", [&](const YamlNode& node) { return fields_.Texts(node, one.paths, FaultInPrefix); }},
        {"git", [&](const YamlNode& node) { return fields_.Choose(node, kGitAccessNames, one.git); }},
        {"ca_file", text(one.ca_file, [](const std::string& path) { return FaultInHostPath(path); })},
    };
    CAISSON_TRY_VOID(fields_.Map(field.value, keys));
    one.port = static_cast<uint16_t>(std::stoul(port));
    if (one.host.empty() || one.header.empty()) return fields_.At(field.key, "needs host, header and secret");
    if (one.secret.file.empty() && one.secret.environment.empty() && one.secret.command.empty())
      return fields_.At(field.key, "needs host, header and secret");
    if (one.environment.empty() && one.value.empty())
      return fields_.At(field.key, "needs environment, for the placeholder, or value, to be added, or both");
    return {};
  }

  Status Secret(const YamlNode& node, SecretSource& source) {
    const YamlKey keys[] = {
        {"file",
         [&](const YamlNode& value) {
           return fields_.Checked(value, source.file, [](const std::string& path) { return FaultInHostPath(path); });
         }},
        {"environment",
         [&](const YamlNode& value) { return fields_.Checked(value, source.environment, FaultInVariable); }},
        {"command",
         [&](const YamlNode& value) {
           return fields_.Items(value, [&](const YamlNode& word) -> Status {
             CAISSON_TRY(source.command.emplace_back(), fields_.Text(word));
             return {};
           });
         }},
    };
    CAISSON_TRY_VOID(fields_.Map(node, keys));
    if (node.fields.size() != 1) return fields_.At(node, "a secret has exactly one of file, environment and command");
    if (!source.command.empty() && (source.command[0].empty() || source.command[0][0] != '/'))
      return fields_.At(node, "the command must be named by its absolute path");
    return {};
  }

  YamlFields fields_;
  std::vector<Credential> credentials_;
};

}  // namespace

Result<std::vector<Credential>> ReadCredentials(std::string_view text, const std::string& file) {
  CAISSON_TRY(const YamlNode document, ReadYaml(text, file));
  return CredentialsReader(file).Read(document);
}

Result<std::vector<Credential>> LoadCredentials(const std::string& path, const std::string& installed) {
  if (path.empty() && ::access(installed.c_str(), F_OK) != 0 && errno == ENOENT) return std::vector<Credential>();
  const std::string& file = path.empty() ? installed : path;
  CAISSON_TRY(const std::string text, ReadPolicyFile(file));
  return ReadCredentials(text, file);
}

}  // namespace caisson::policy
