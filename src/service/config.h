// The operator's settings, read from one YAML file. Every key stands in one table (config.cc) with its default and its
// meaning; the reader, `caissond --keys` and docs/operator/configuration.md all come from it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caisson::service {

struct Config {
  // Where things are
  std::string state_dir = "/var/lib/caisson";
  std::string socket;  // empty: caissond.sock in the state directory
  std::string listen;
  std::string tokens;
  std::string tls_certificate, tls_key;
  std::vector<std::string> allowed_hosts;
  std::string database = "sqlite";
  std::string node;  // empty: the host's name
  std::string user;
  std::string policy, profiles;
  std::string images;  // empty: below state_dir
  std::string signing_key;

  // How much at once
  int64_t workers = 0;  // 0: one for each CPU
  int64_t memory_reserve = int64_t{256} << 20;
  int64_t max_queue = 10'000;
  int64_t max_queue_per_tenant = 5'000;
  int64_t tenant_concurrency = 0;
  std::map<std::string, int64_t> tenant_limits;
  int64_t network_connections_per_tenant = 0;
  int64_t network_bytes_per_tenant = 0;
  int64_t parked = 0;
  std::vector<std::string> python_modules;

  // Agent sessions
  int64_t sessions = 64;
  int64_t sessions_per_tenant = 16;
  int64_t sessions_kept_per_tenant = 256;
  std::vector<std::string> session_projects;
  int64_t session_file_bytes = int64_t{64} << 20;
  std::string session_apply = "refuse";
  std::string sessions_on_stop = "keep";

  // How long
  int64_t lease_ms = 15'000;
  int64_t drain_ms = 30'000;
  int64_t max_attempts = 3;
  int64_t retry_initial_ms = 1'000;
  int64_t retry_max_ms = 60'000;
  int64_t approval_ttl_ms = 24LL * 3'600'000;
  int64_t approval_quorum = 1;
  int64_t idempotency_ttl_ms = 7LL * 24 * 3'600'000;
  int64_t retention_ms = 30LL * 24 * 3'600'000;
  int64_t blob_quota = int64_t{20} << 30;
  int64_t blob_quota_per_tenant = int64_t{4} << 30;

  // Callbacks
  std::string callback_secret;
  std::vector<std::string> callback_allow;
  int64_t callback_tries = 8;
};

struct ConfigKey {
  std::string_view name;
  std::string_view type;  // for people: "path", "duration", "size", "count", "list", "map"
  std::string_view standard;
  std::string_view meaning;
};
std::span<const ConfigKey> ConfigKeys();

// `file` names the text in messages. Errors are kInvalid and name the line and the key.
Result<Config> ReadConfig(std::string_view text, const std::string& file);
Result<Config> LoadConfig(const std::string& path);

}  // namespace caisson::service
