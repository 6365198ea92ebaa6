#include "service/config.h"

#include <array>
#include <functional>
#include <limits>

#include "base/units.h"
#include "policy/profile_store.h"
#include "policy/yaml_fields.h"

namespace caisson::service {
namespace {

using policy::Fault;
using policy::YamlFields;
using policy::YamlKey;
using policy::YamlNode;

constexpr int64_t kMaxDurationMs = int64_t{366} * 24 * 3'600'000;
constexpr int64_t kMaxCount = 1'000'000;

using Read = Status (*)(const YamlFields&, const YamlNode&, Config&);

struct Row {
  ConfigKey key;
  Read read;
};

template <std::string Config::*field>
Status Text(const YamlFields& fields, const YamlNode& node, Config& config) {
  CAISSON_TRY(config.*field, fields.Text(node));
  return {};
}

template <std::string Config::*field>
Status AbsolutePath(const YamlFields& fields, const YamlNode& node, Config& config) {
  return fields.Checked(node, config.*field, [](const std::string& text) { return policy::FaultInHostPath(text); });
}

template <typename Parse>
Status Quantity(const YamlFields& fields, const YamlNode& node, int64_t& value, Parse parse, int64_t minimum,
                int64_t maximum) {
  CAISSON_TRY(const std::string text, fields.Text(node));
  const Result<int64_t> parsed = parse(text);
  if (!parsed) return fields.At(node, parsed.error().message);
  if (*parsed < minimum || *parsed > maximum) return fields.At(node, text + " is out of range");
  value = *parsed;
  return {};
}

template <int64_t Config::*field, int64_t minimum = 0>
Status Count(const YamlFields& fields, const YamlNode& node, Config& config) {
  return Quantity(fields, node, config.*field, ParseCount, minimum, kMaxCount);
}

template <int64_t Config::*field, int64_t minimum = 1>
Status Duration(const YamlFields& fields, const YamlNode& node, Config& config) {
  return Quantity(fields, node, config.*field, ParseDuration, minimum, kMaxDurationMs);
}

template <int64_t Config::*field>
Status Size(const YamlFields& fields, const YamlNode& node, Config& config) {
  return Quantity(fields, node, config.*field, ParseSize, 0, std::numeric_limits<int64_t>::max());
}

template <std::vector<std::string> Config::*field>
Status Words(const YamlFields& fields, const YamlNode& node, Config& config) {
  return fields.Texts(node, config.*field,
                      [](const std::string& text) { return text.empty() ? Fault("is empty") : Fault(); });
}

template <std::vector<std::string> Config::*field>
Status Directories(const YamlFields& fields, const YamlNode& node, Config& config) {
  return fields.Texts(node, config.*field, [](const std::string& text) { return policy::FaultInHostPath(text); });
}

Status OnStop(const YamlFields& fields, const YamlNode& node, Config& config) {
  return fields.Checked(node, config.sessions_on_stop, [](const std::string& text) {
    return text == "keep" || text == "end" ? Fault() : Fault("is neither keep nor end");
  });
}

Status MayApply(const YamlFields& fields, const YamlNode& node, Config& config) {
  return fields.Checked(node, config.session_apply, [](const std::string& text) {
    return text == "allow" || text == "refuse" ? Fault() : Fault("is neither allow nor refuse");
  });
}

Status TenantLimits(const YamlFields& fields, const YamlNode& node, Config& config) {
  if (node.kind != YamlNode::Kind::kMap) return fields.At(node, "expected a map of tenant: count");
  for (const policy::YamlField& field : node.fields) {
    if (!policy::IsWord(field.key.text, "._-", 64)) return fields.At(field.key, "is no tenant's name");
    CAISSON_TRY_VOID(Quantity(fields, field.value, config.tenant_limits[field.key.text], ParseCount, 1, kMaxCount));
  }
  return {};
}

constexpr Row kRows[] = {
    {{"state_dir", "path", "/var/lib/caisson", "database, blobs and audit log; made 0700 when missing"},
     AbsolutePath<&Config::state_dir>},
    {{"socket", "path", "STATE_DIR/caissond.sock", "the unix socket of the API, mode 0600"},
     AbsolutePath<&Config::socket>},
    {{"listen", "address:port", "none", "also serve over TCP; needs `tokens`, and TLS unless it is loopback"},
     Text<&Config::listen>},
    {{"tokens", "path", "none", "who may call and what each may do: names, tenants, rights, hashes of tokens"},
     AbsolutePath<&Config::tokens>},
    {{"tls_certificate", "path", "none", "PEM chain for `listen`"}, AbsolutePath<&Config::tls_certificate>},
    {{"tls_key", "path", "none", "PEM key of the certificate"}, AbsolutePath<&Config::tls_key>},
    {{"allowed_hosts", "list", "localhost", "names callers may use in the Host header"}, Words<&Config::allowed_hosts>},
    {{"database", "text", "sqlite", "`sqlite` (in the state directory), or a PostgreSQL connection string"},
     Text<&Config::database>},
    {{"node", "name", "the host's name", "tells the services on one database apart; must be unique and stay"},
     Text<&Config::node>},
    {{"user", "name", "none", "started as root: the user caissond becomes once its launcher runs"},
     Text<&Config::user>},
    {{"policy", "path", "the usual places", "rules above all profiles"}, AbsolutePath<&Config::policy>},
    {{"images", "path", "state_dir/images", "the image store that requests name images of"},
     AbsolutePath<&Config::images>},
    {{"profiles", "path", "the usual places", "directory of the operator's own profiles"},
     AbsolutePath<&Config::profiles>},
    {{"signing_key", "path", "none", "Ed25519 key: results get a signed attestation"},
     AbsolutePath<&Config::signing_key>},
    {{"workers", "count", "one for each CPU", "jobs that run at once on this machine"}, Count<&Config::workers>},
    {{"memory_reserve", "size", "256M", "memory kept free: a job starts only if its limit fits beside it"},
     Size<&Config::memory_reserve>},
    {{"max_queue", "count", "10000", "jobs waiting before a submit is answered 429; 0: no bound"},
     Count<&Config::max_queue>},
    {{"max_queue_per_tenant", "count", "5000", "the same for one tenant"}, Count<&Config::max_queue_per_tenant>},
    {{"tenant_concurrency", "count", "0", "jobs of one tenant at once, on all machines; 0: no bound"},
     Count<&Config::tenant_concurrency>},
    {{"tenant_limits", "map", "none", "the same by tenant, instead"}, TenantLimits},
    {{"network_connections_per_tenant", "count", "0",
      "connections at a time of all jobs of one tenant; a job without one left waits; 0: no bound"},
     Count<&Config::network_connections_per_tenant>},
    {{"network_bytes_per_tenant", "size", "0",
      "bytes in a day (UTC), both ways, of all jobs of one tenant; then jobs with a network are rejected; 0: no bound"},
     Size<&Config::network_bytes_per_tenant>},
    {{"parked", "count", "0", "sandboxes built ahead, at most"}, Count<&Config::parked>},
    {{"python_modules", "list", "none", "with `parked`: Python is forked from an interpreter that has these imported"},
     Words<&Config::python_modules>},
    {{"sessions", "count", "64", "living agent sessions on this machine; 0: none are opened"},
     Count<&Config::sessions>},
    {{"sessions_per_tenant", "count", "16", "the same for one tenant; beyond: 429"},
     Count<&Config::sessions_per_tenant, 1>},
    {{"sessions_kept_per_tenant", "count", "256", "sessions of one tenant, ended ones that were not deleted included"},
     Count<&Config::sessions_kept_per_tenant, 1>},
    {{"session_projects", "list", "none",
      "directories at or below which tenants may open sessions on a project; policy judges the path too"},
     Directories<&Config::session_projects>},
    {{"session_file_bytes", "size", "64M", "the largest file that may be sent into a session"},
     Size<&Config::session_file_bytes>},
    {{"session_apply", "word", "refuse",
      "`allow`: callers with the right approve may bring a session's changes into its project"},
     MayApply},
    {{"sessions_on_stop", "word", "keep", "living sessions when the service ends: `keep` or `end`"}, OnStop},
    {{"lease", "duration", "15s",
      "how long a silent worker keeps its job; the lease is renewed three times in this period"},
     Duration<&Config::lease_ms, 1'000>},
    {{"drain", "duration", "30s", "on SIGTERM: how long running jobs may finish"}, Duration<&Config::drain_ms, 0>},
    {{"max_attempts", "count", "3", "attempts without a verdict before a job becomes a dead letter"},
     Count<&Config::max_attempts, 1>},
    {{"retry_initial", "duration", "1s",
      "wait before the second attempt; doubles each time, minus a random part of up to one half"},
     Duration<&Config::retry_initial_ms>},
    {{"retry_max", "duration", "1m", "the longest such wait"}, Duration<&Config::retry_max_ms>},
    {{"approval_ttl", "duration", "24h", "how long people have to answer; then the job is rejected"},
     Duration<&Config::approval_ttl_ms>},
    {{"approval_quorum", "count", "1", "how many people must grant"}, Count<&Config::approval_quorum, 1>},
    {{"idempotency_ttl", "duration", "168h", "how long an idempotency key is remembered"},
     Duration<&Config::idempotency_ttl_ms>},
    {{"retention", "duration", "720h", "how long an ended job and its artifacts are kept"},
     Duration<&Config::retention_ms>},
    {{"blob_quota", "size", "20G", "room for results, artifacts and archives; full: no new jobs, and jobs wait"},
     Size<&Config::blob_quota>},
    {{"blob_quota_per_tenant", "size", "4G", "the same for one tenant; full: no new jobs of the tenant; 0: no bound"},
     Size<&Config::blob_quota_per_tenant>},
    {{"callback_secret", "path", "none", "file with the key that signs callbacks; without it callbacks are off"},
     AbsolutePath<&Config::callback_secret>},
    {{"callback_allow", "list", "none", "addresses (CIDR) that callbacks may reach although they are private"},
     Words<&Config::callback_allow>},
    {{"callback_tries", "count", "8", "delivery attempts before a callback is given up"},
     Count<&Config::callback_tries, 1>},
};

constexpr auto kKeys = [] {
  std::array<ConfigKey, std::size(kRows)> keys{};
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = kRows[i].key;
  return keys;
}();

Status CheckTogether(const Config& config, const std::string& file) {
  const auto fault = [&](const std::string& what) { return Error::Invalid(file + ": " + what); };
  if (!config.listen.empty() && config.tokens.empty()) return fault("listen: callers over TCP need tokens; set tokens");
  if (config.tls_certificate.empty() != config.tls_key.empty())
    return fault("tls_certificate and tls_key belong together");
  if (!config.node.empty() && !policy::IsWord(config.node, "._-", 64))
    return fault("node: letters, digits, dots, underscores and hyphens only");
  return {};
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() { return kKeys; }

Result<Config> ReadConfig(std::string_view text, const std::string& file) {
  Config config;
  CAISSON_TRY(const YamlNode document, policy::ReadYaml(text, file));
  const YamlFields fields(file);
  std::vector<YamlKey> keys;
  for (const Row& row : kRows) {
    keys.push_back({row.key.name, [&](const YamlNode& node) { return row.read(fields, node, config); }});
  }
  CAISSON_TRY_VOID(fields.Map(document, keys));
  CAISSON_TRY_VOID(CheckTogether(config, file));
  return config;
}

Result<Config> LoadConfig(const std::string& path) {
  CAISSON_TRY(const std::string text, policy::ReadPolicyFile(path));
  return ReadConfig(text, path);
}

}  // namespace caisson::service
