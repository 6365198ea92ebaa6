#include "runtime/kubernetes/settings.h"

#include <gtest/gtest.h>

namespace caisson::runtime::kubernetes {
namespace {

TEST(SettingsTest, EveryKeyIsRead) {
  const Result<Settings> settings = ReadSettings(
      "version: 1\nimage: r.example/agent@sha256:00\npull_policy: Never\nnamespace: jobs\nruntime_class: kata\n"
      "node_selector: {pool: caisson}\nhost_users: true\npod_network: policy\nstart_seconds: 7\n",
      "k.yaml");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->image, "r.example/agent@sha256:00");
  EXPECT_EQ(settings->pull_policy, "Never");
  EXPECT_EQ(settings->node_selector[0].second, "caisson");
  EXPECT_TRUE(settings->host_users);
  EXPECT_EQ(settings->pod_network, PodNetwork::kPolicy);
  EXPECT_EQ(settings->start_seconds, 7);
}

TEST(SettingsTest, MistakesAreNamed) {
  for (const char* text :
       {"version: 1\n", "version: 1\nimage: ''\n", "version: 1\nimage: a\nimages: b\n",
        "version: 1\nimage: a\nstart_seconds: 0\n", "version: 1\nimage: a\npull_policy: Sometimes\n"})
    EXPECT_FALSE(ReadSettings(text, "k.yaml")) << text;
}

std::string Config(const std::string& cluster, const std::string& user) {
  return "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u, namespace: jobs}}]\n"
         "clusters: [{name: c, cluster: {" +
         cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n";
}

TEST(KubeconfigTest, AddressesAndCredentials) {
  const Result<Access> access = ReadKubeconfig(
      Config("server: \"https://[::1]:6443/prefix/\", certificate-authority-data: Q0E=", "token: abc"), "f", "");
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_EQ(access->host, "::1");
  EXPECT_EQ(access->port, "6443");
  EXPECT_EQ(access->path, "/prefix");
  EXPECT_EQ(access->authority, "CA");
  EXPECT_EQ(access->token, "abc");
  EXPECT_EQ(access->name_space, "jobs");
  const Result<Access> named = ReadKubeconfig(Config("server: https://k.example", "tokenFile: t"), "/d/f", "x");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->port, "443");
  EXPECT_EQ(named->token_file, "/d/t");
}

TEST(KubeconfigTest, WhatWouldWeakenOrRunIsRefused) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"server: https://k", "exec: {command: aws}"},
      {"server: https://k", "auth-provider: {name: gcp}"},
      {"server: https://k", "username: u, password: p"},
      {"server: https://k", "token: t, as: admin"},
      {"server: https://k", ""},
      {"server: http://k", "token: t"},
      {"server: https://k, insecure-skip-tls-verify: true", "token: t"},
      {"server: https://k, proxy-url: http://p", "token: t"},
      {"server: https://k, certificate-authority-data: '*'", "token: t"},
  };
  for (const auto& [cluster, user] : kRefused) EXPECT_FALSE(ReadKubeconfig(Config(cluster, user), "f", "")) << user;
  EXPECT_FALSE(ReadKubeconfig(Config("server: https://k", "token: t"), "f", "other"));
}

}  // namespace
}  // namespace caisson::runtime::kubernetes
