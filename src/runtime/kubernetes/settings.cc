#include "runtime/kubernetes/settings.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "base/words.h"
#include "linux/files.h"
#include "policy/syntax.h"
#include "policy/yaml_fields.h"

namespace caisson::runtime::kubernetes {

namespace {

using policy::Fault;
using policy::YamlKey;
using policy::YamlNode;

constexpr size_t kMaxSecretBytes = size_t{1} << 20;
constexpr char kAccountDirectory[] = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr const char* kPullPolicies[] = {"Always", "IfNotPresent", "Never"};
constexpr const char* kPodNetworks[] = {"closed", "policy"};

Fault FaultInLine(const std::string& text) {
  if (text.empty()) return "is empty";
  for (const char letter : text) {
    if (letter <= ' ' || letter == 0x7f) return "has a space or a control character";
  }
  return text.size() > 1024 ? Fault("is longer than 1024 bytes") : std::nullopt;
}

std::string Variable(const char* name) {
  const char* value = ::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<Settings> ReadSettings(std::string_view text, const std::string& file) {
  CAISSON_TRY(const YamlNode document, policy::ReadYaml(text, file));
  const policy::YamlFields fields(file);
  Settings settings;
  const auto line = [&](std::string& value) {
    return [&fields, &value](const YamlNode& node) { return fields.Checked(node, value, FaultInLine); };
  };
  const YamlKey keys[] = {
      {"version", [&](const YamlNode& node) { return fields.Version(node); }},
      {"image", line(settings.image)},
      {"pull_policy",
       [&](const YamlNode& node) -> Status {
         CAISSON_TRY(const size_t choice, fields.Choice(node, kPullPolicies));
         settings.pull_policy = kPullPolicies[choice];
         return {};
       }},
      {"kubeconfig", line(settings.kubeconfig)},
      {"context", line(settings.context)},
      {"namespace", line(settings.name_space)},
      {"runtime_class", line(settings.runtime_class)},
      {"seccomp_profile", line(settings.seccomp_profile)},
      {"host_users", [&](const YamlNode& node) { return fields.Truth(node, settings.host_users); }},
      {"pod_network", [&](const YamlNode& node) { return fields.Choose(node, kPodNetworks, settings.pod_network); }},
      {"node_selector",
       [&](const YamlNode& node) -> Status {
         if (node.kind != YamlNode::Kind::kMap) return fields.At(node, "is not a map of labels");
         for (const policy::YamlField& label : node.fields) {
           CAISSON_TRY(std::string value, fields.Text(label.value));
           settings.node_selector.emplace_back(label.key.text, std::move(value));
         }
         return {};
       }},
      {"start_seconds",
       [&](const YamlNode& node) -> Status {
         CAISSON_TRY(const std::string number, fields.Text(node));
         const auto [end, error] =
             std::from_chars(number.data(), number.data() + number.size(), settings.start_seconds);
         if (error != std::errc() || end != number.data() + number.size() || settings.start_seconds < 1 ||
             settings.start_seconds > 3600)
           return fields.At(node, "is not a number of seconds from 1 to 3600");
         return {};
       }},
  };
  CAISSON_TRY_VOID(fields.Map(document, keys));
  if (settings.image.empty())
    return Error::Invalid(file +
                          ": image: missing; it names the image with caisson-agent, for example "
                          "registry.example.org/caisson-agent@sha256:…");
  return settings;
}

Result<Settings> FindSettings() {
  std::string file = Variable(kSettingsVariable);
  if (file.empty() && ::access(kSettingsFile, F_OK) != 0)
    return Error::Unsupported(std::string("runtime kubernetes: not configured; write ") + kSettingsFile +
                              " (docs/operator/kubernetes.md), or name another file in " + kSettingsVariable);
  if (file.empty()) file = kSettingsFile;
  CAISSON_TRY(const std::string text, linux_sys::ReadDocument(file, policy::kMaxYamlBytes));
  return ReadSettings(text, file);
}

namespace {

class Kubeconfig {
 public:
  Kubeconfig(const std::string& file, const YamlNode& document) : file_(file), document_(document) {}

  Result<Access> Read(std::string context) {
    if (context.empty()) {
      CAISSON_TRY(context, Text(document_, "current-context"));
    }
    if (context.empty()) return Error::Invalid(file_ + ": current-context: missing; name one with the setting context");
    CAISSON_TRY(const YamlNode* chosen, Find("contexts", context, "context"));
    CAISSON_TRY(const std::string cluster_name, Text(*chosen, "cluster"));
    CAISSON_TRY(const std::string user_name, Text(*chosen, "user"));
    CAISSON_TRY(access_.name_space, Text(*chosen, "namespace"));
    CAISSON_TRY(const YamlNode* cluster, Find("clusters", cluster_name, "cluster"));
    CAISSON_TRY(const YamlNode* user, Find("users", user_name, "user"));
    CAISSON_TRY_VOID(ReadCluster(*cluster));
    CAISSON_TRY_VOID(ReadUser(*user));
    return std::move(access_);
  }

 private:
  // Empty when it is absent or null.
  Result<std::string> Text(const YamlNode& map, const char* key) const {
    const YamlNode* node = map.Find(key);
    if (node == nullptr || node->IsNull()) return std::string();
    if (node->kind != YamlNode::Kind::kScalar) return policy::FaultAt(file_, *node, std::string(key) + " is no text");
    return node->text;
  }

  // The part `inner` of the entry of that name in the list `key`.
  Result<const YamlNode*> Find(const char* key, const std::string& name, const char* inner) const {
    const YamlNode* list = document_.Find(key);
    for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
      const YamlNode& entry = list->items[i];
      CAISSON_TRY(const std::string known, Text(entry, "name"));
      if (known != name) continue;
      const YamlNode* found = entry.Find(inner);
      if (found == nullptr || found->kind != YamlNode::Kind::kMap)
        return policy::FaultAt(file_, entry, std::string(inner) + " is missing");
      return found;
    }
    return Error::Invalid(file_ + ": " + key + ": none is named " + Quoted(name));
  }

  Status Refuse(const YamlNode& map, const char* key, const char* reason) const {
    const YamlNode* node = map.Find(key);
    if (node == nullptr || node->IsNull() || node->text == "false") return {};
    return policy::FaultAt(file_, *node, std::string(key) + ": " + reason);
  }

  // The bytes of KEY-data, or of the file that KEY names.
  Result<std::string> Bytes(const YamlNode& map, const std::string& key) const {
    CAISSON_TRY(const std::string data, Text(map, (key + "-data").c_str()));
    if (!data.empty()) {
      std::optional<std::string> bytes = policy::DecodeBase64(data);
      if (!bytes) return Error::Invalid(file_ + ": " + key + "-data: is not base64");
      return *std::move(bytes);
    }
    CAISSON_TRY(const std::string path, Text(map, key.c_str()));
    if (path.empty()) return std::string();
    return linux_sys::ReadDocument(Absolute(path), kMaxSecretBytes);
  }

  std::string Absolute(const std::string& path) const {
    if (path.empty() || path[0] == '/') return path;
    return file_.substr(0, file_.rfind('/') + 1) + path;  // npos + 1 is 0: the working directory
  }

  Status ReadCluster(const YamlNode& cluster) {
    CAISSON_TRY_VOID(Refuse(cluster, "insecure-skip-tls-verify",
                            "refused, because any machine on the way could then act as the cluster; name its "
                            "certificate-authority"));
    CAISSON_TRY_VOID(Refuse(cluster, "proxy-url", "proxies are not supported"));
    CAISSON_TRY(const std::string server, Text(cluster, "server"));
    constexpr std::string_view kScheme = "https://";
    if (server.compare(0, kScheme.size(), kScheme) != 0)
      return Error::Invalid(file_ + ": server: " + Quoted(server) + " is not an https:// address");
    std::string rest = server.substr(kScheme.size());
    const size_t slash = rest.find('/');
    if (slash != std::string::npos) access_.path = rest.substr(slash);
    while (!access_.path.empty() && access_.path.back() == '/') access_.path.pop_back();
    rest = rest.substr(0, slash);
    const size_t bracket = rest.find(']');
    const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
    access_.port = colon == std::string::npos ? "443" : rest.substr(colon + 1);
    access_.host = rest.substr(0, colon);
    if (bracket != std::string::npos) access_.host = rest.substr(1, bracket - 1);
    if (access_.host.empty() || access_.port.empty() || access_.port.size() > 5 ||
        access_.port.find_first_not_of("0123456789") != std::string::npos)
      return Error::Invalid(file_ + ": server: " + Quoted(server) + " has no host or no port");
    CAISSON_TRY(access_.server_name, Text(cluster, "tls-server-name"));
    CAISSON_TRY(access_.authority, Bytes(cluster, "certificate-authority"));
    return {};
  }

  Status ReadUser(const YamlNode& user) {
    constexpr char kNoPlugin[] =
        "refused, because it names a program that would run with this user's rights; use a client certificate, a token "
        "or a service account (docs/operator/kubernetes.md)";
    CAISSON_TRY_VOID(Refuse(user, "exec", kNoPlugin));
    CAISSON_TRY_VOID(Refuse(user, "auth-provider", kNoPlugin));
    CAISSON_TRY_VOID(Refuse(user, "username", "passwords are not supported"));
    CAISSON_TRY_VOID(Refuse(user, "as", "acting as another user is not supported"));
    CAISSON_TRY(access_.certificate, Bytes(user, "client-certificate"));
    CAISSON_TRY(access_.key, Bytes(user, "client-key"));
    CAISSON_TRY(access_.token, Text(user, "token"));
    CAISSON_TRY(const std::string token_file, Text(user, "tokenFile"));
    access_.token_file = Absolute(token_file);
    if (access_.certificate.empty() && access_.token.empty() && access_.token_file.empty())
      return Error::Invalid(file_ + ": the user has neither a client-certificate nor a token");
    if (access_.certificate.empty() != access_.key.empty())
      return Error::Invalid(file_ + ": client-certificate and client-key come together");
    return {};
  }

  const std::string& file_;
  const YamlNode& document_;
  Access access_;
};

Result<Access> FindAccountOfPod() {
  Access access;
  access.host = Variable("KUBERNETES_SERVICE_HOST");
  access.port = Variable("KUBERNETES_SERVICE_PORT");
  const std::string directory = kAccountDirectory;
  CAISSON_TRY(access.authority, linux_sys::ReadDocument(directory + "ca.crt", kMaxSecretBytes));
  CAISSON_TRY(access.name_space, linux_sys::ReadDocument(directory + "namespace", 256));
  access.token_file = directory + "token";
  return access;
}

}  // namespace

Result<Access> ReadKubeconfig(std::string_view text, const std::string& file, const std::string& context) {
  CAISSON_TRY(const YamlNode document, policy::ReadYaml(text, file));
  if (document.kind != YamlNode::Kind::kMap) return policy::FaultAt(file, document, "is not a kubeconfig");
  return Kubeconfig(file, document).Read(context);
}

Result<Access> FindAccess(const Settings& settings) {
  std::string file = settings.kubeconfig;
  if (file.empty()) file = Variable("KUBECONFIG");
  if (file.empty() && ::access((Variable("HOME") + "/.kube/config").c_str(), F_OK) == 0)
    file = Variable("HOME") + "/.kube/config";
  Result<Access> access = Error::Unsupported(
      "runtime kubernetes: no cluster; name a kubeconfig in the settings or in KUBECONFIG, or run in a pod that has a "
      "service account");
  if (!file.empty()) {
    CAISSON_TRY(const std::string text, linux_sys::ReadDocument(file, policy::kMaxYamlBytes));
    access = ReadKubeconfig(text, file, settings.context);
  } else if (!Variable("KUBERNETES_SERVICE_HOST").empty()) {
    access = FindAccountOfPod();
  }
  if (!access) return std::move(access).error();
  if (!settings.name_space.empty()) access->name_space = settings.name_space;
  if (access->name_space.empty()) access->name_space = "default";
  return access;
}

}  // namespace caisson::runtime::kubernetes
