// Credentials that never enter a sandbox. The operator binds a secret to one host, port, path prefix and header; inside
// there is only a placeholder, and caisson-egress puts the secret in its place on the way out (docs/design/egress.md).
//
//   version: 1
//   kind: credentials
//   credentials:
//     github:
//       host: api.github.com          # a name, no wildcard; reached by TLS
//       port: 443                     # the default
//       path: /repos/example/         # where the secret is put in; default /
//       header: Authorization
//       value: "Bearer {secret}"      # what is added where the program sends no such header; without it: nothing
//       environment: GITHUB_TOKEN     # holds the placeholder inside
//       secret: {file: /etc/caisson/github-token}   # or {environment: NAME} or {command: [pass, show, github]}
//       methods: [GET, HEAD, POST]    # others are refused at that host; default: all
//       paths: [/repos/]              # others are refused at that host; default: all
//       git: read                     # at that host, fetching is allowed and pushing is not
//       ca_file: /etc/caisson/internal-ca.pem       # trusted for this host besides the host's roots
//
// SECURITY: no member of these types holds a secret. A secret travels from its source to caisson-egress as a
// descriptor; the process that clones the sandbox's PID 1 never has it in its memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::policy {

// Where a secret comes from; exactly one member is set.
struct SecretSource {
  std::string file;
  std::string environment;
  std::vector<std::string> command;
};

enum class GitAccess : uint8_t { kAny, kRead };
inline constexpr const char* kGitAccessNames[] = {"any", "read"};

struct Credential {
  std::string name;
  std::string host;
  uint16_t port = 443;
  std::string path = "/";
  std::string header;
  std::string value;        // with "{secret}"; empty: the header is never added
  std::string environment;  // empty: no variable inside
  SecretSource secret;
  std::vector<std::string> methods;  // empty: all
  std::vector<std::string> paths;    // empty: all
  GitAccess git = GitAccess::kAny;
  std::string ca_file;
};

// A credential that a run may use.
struct PlannedCredential {
  Credential bound;
  UniqueFd secret;  // opened when the run starts
  UniqueFd ca;      // likewise; invalid without ca_file
};

inline constexpr char kCredentialsPath[] = "/etc/caisson/credentials.yaml";

Result<std::vector<Credential>> ReadCredentials(std::string_view text, const std::string& file);
// The file at `path`; when that is empty, the installed one, and no credential where there is none.
Result<std::vector<Credential>> LoadCredentials(const std::string& path,
                                                const std::string& installed = kCredentialsPath);

// Opens what a run needs of each credential, runs the commands that print secrets, and removes secrets from this
// process's environment. The error names the credential and never its value.
Status OpenSecrets(std::vector<PlannedCredential>& credentials);

}  // namespace caisson::policy
