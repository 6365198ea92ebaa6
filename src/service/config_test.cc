#include "service/config.h"

#include <gtest/gtest.h>

namespace caisson::service {
namespace {

std::string FaultIn(const std::string& text) {
  const Result<Config> config = ReadConfig(text, "c.yaml");
  return config ? "" : config.error().message;
}

TEST(Config, ReadsEveryKindOfValue) {
  const Result<Config> config = ReadConfig(
      "state_dir: /srv/caisson\nworkers: 4\nlease: 5s\nmemory_reserve: 1G\nallowed_hosts: [a.example, b.example]\n"
      "tenant_limits: {ci: 3, lab: 1}\ndatabase: host=/run/pg dbname=caisson\n",
      "c.yaml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->state_dir, "/srv/caisson");
  EXPECT_EQ(config->workers, 4);
  EXPECT_EQ(config->lease_ms, 5'000);
  EXPECT_EQ(config->memory_reserve, int64_t{1} << 30);
  EXPECT_EQ(config->allowed_hosts, (std::vector<std::string>{"a.example", "b.example"}));
  EXPECT_EQ(config->tenant_limits, (std::map<std::string, int64_t>{{"ci", 3}, {"lab", 1}}));
  EXPECT_EQ(config->database, "host=/run/pg dbname=caisson");
}

// The documented default of a key must be its real default.
TEST(Config, StatesItsDefaultsTruthfully) {
  const Config standard;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.type != "count" && key.type != "duration" && key.type != "size") continue;
    if (key.standard.find(' ') != std::string_view::npos) continue;  // documented in words
    const std::string text = std::string(key.name) + ": " + std::string(key.standard) + "\n";
    const Result<Config> read = ReadConfig(text, "c.yaml");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->max_queue, standard.max_queue) << text;
    EXPECT_EQ(read->max_queue_per_tenant, standard.max_queue_per_tenant) << text;
    EXPECT_EQ(read->tenant_concurrency, standard.tenant_concurrency) << text;
    EXPECT_EQ(read->memory_reserve, standard.memory_reserve) << text;
    EXPECT_EQ(read->lease_ms, standard.lease_ms) << text;
    EXPECT_EQ(read->drain_ms, standard.drain_ms) << text;
    EXPECT_EQ(read->max_attempts, standard.max_attempts) << text;
    EXPECT_EQ(read->retry_initial_ms, standard.retry_initial_ms) << text;
    EXPECT_EQ(read->retry_max_ms, standard.retry_max_ms) << text;
    EXPECT_EQ(read->approval_ttl_ms, standard.approval_ttl_ms) << text;
    EXPECT_EQ(read->approval_quorum, standard.approval_quorum) << text;
    EXPECT_EQ(read->idempotency_ttl_ms, standard.idempotency_ttl_ms) << text;
    EXPECT_EQ(read->retention_ms, standard.retention_ms) << text;
    EXPECT_EQ(read->blob_quota, standard.blob_quota) << text;
    EXPECT_EQ(read->callback_tries, standard.callback_tries) << text;
  }
}

TEST(Config, NamesTheFault) {
  EXPECT_NE(FaultIn("worker: 4\n").find("workers"), std::string::npos) << FaultIn("worker: 4\n");
  EXPECT_NE(FaultIn("lease: soon\n").find("c.yaml:1:"), std::string::npos);
  EXPECT_NE(FaultIn("lease: 1ms\n").find("out of range"), std::string::npos);
  EXPECT_NE(FaultIn("state_dir: here\n"), "");
  EXPECT_NE(FaultIn("listen: 127.0.0.1:80\n").find("tokens"), std::string::npos);
  EXPECT_NE(FaultIn("tls_key: /k\n").find("tls_certificate"), std::string::npos);
  EXPECT_NE(FaultIn("tenant_limits: {a b: 1}\n"), "");
  EXPECT_NE(FaultIn("workers: 1\nworkers: 2\n"), "");
}

}  // namespace
}  // namespace caisson::service
