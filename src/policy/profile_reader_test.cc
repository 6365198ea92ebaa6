// The corpus in tests/schemas/corpus/profile says what is refused and where; these tests show what accepted profiles
// become.
#include "policy/profile_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "policy/profile_json.h"
#include "policy/profile_store.h"
#include "support/profiles.h"

namespace caisson::policy {
namespace {

using support::OnTop;
using support::ReadOnTop;

std::string Fault(const std::string& yaml, const char* parent = "balanced") {
  const Result<Profile> profile = ReadOnTop(yaml, parent);
  return profile ? "accepted" : profile.error().message;
}

TEST(ProfileReaderTest, MapsAreMergedAndListsReplaced) {
  const Profile& base = *FindBuiltIn("balanced");
  const Profile mine = OnTop("proc: {masked_files: [kcore]}\nlimits: {cpu: 500m}\nsystem_paths: [/usr]\n");
  EXPECT_EQ(mine.proc.masked_files, std::vector<std::string>{"kcore"});
  EXPECT_EQ(mine.proc.masked_directories, base.proc.masked_directories);
  EXPECT_EQ(mine.limits.cpu_millis, 500);
  EXPECT_EQ(mine.limits.memory_bytes, base.limits.memory_bytes);
  EXPECT_EQ(mine.system_paths, std::vector<std::string>{"/usr"});
  EXPECT_EQ(mine.name, "mine");
  EXPECT_EQ(mine.built_in, "balanced");
}

TEST(ProfileReaderTest, SetsEveryKey) {
  const Profile mine = OnTop(R"(
description: all
strength: microvm
namespaces: [user, time]
etc_paths: [/etc/ssl/certs]
devices: ["null"]
proc: {subset: pids}
mounts: [{source: /srv, target: /data, access: cow}]
workspace: cow
writable_paths: [/scratch]
seccomp: {filter: strict, allow: [ptrace], deny: [bpf]}
landlock: false
capabilities: [CAP_KILL]
no_new_privileges: false
network: {mode: allowlist, allow: [example.org]}
environment: {NEW: x, HOME: null, LANG: C}
ignored_writes: [x]
probes: [{reason: syscall.fanotify, why: watchers}, {write: /var/lib/mine, why: mine}]
on_violation: report
allow_degraded: [landlock]
project: {root_path: /srv, allowed_paths: [{path: a, access: rw}], denied_paths: [b]}
)");
  EXPECT_EQ(mine.strength, Strength::kMicroVm);
  EXPECT_EQ(mine.namespaces, 0b10000001);
  EXPECT_TRUE(mine.proc.pids_only);
  ASSERT_EQ(mine.mounts.size(), 1u);
  EXPECT_EQ(mine.mounts[0].access, Access::kCopyOnWrite);
  EXPECT_EQ(mine.workspace, Access::kCopyOnWrite);
  EXPECT_EQ(mine.seccomp.filter, "strict");
  EXPECT_FALSE(mine.landlock || mine.no_new_privileges);
  EXPECT_EQ(mine.network.mode, NetworkMode::kAllowlist);
  ASSERT_EQ(mine.probes.size(), 2u);  // they replace the parent's
  EXPECT_EQ(mine.probes[0].reason, "syscall.fanotify");
  EXPECT_EQ(mine.probes[1].write, "/var/lib/mine");
  EXPECT_EQ(mine.probes[1].why, "mine");
  EXPECT_EQ(mine.on_violation, OnViolation::kReport);
  EXPECT_TRUE(mine.Allows("landlock"));
  EXPECT_FALSE(mine.Allows("cgroup"));
  ASSERT_TRUE(mine.project);
  EXPECT_EQ(mine.project->allowed_paths[0].access, Access::kReadWrite);
  const auto variable = [&](const char* name) {
    for (const auto& [key, value] : mine.environment) {
      if (key == name) return value;
    }
    return std::string("(unset)");
  };
  EXPECT_EQ(variable("NEW"), "x");
  EXPECT_EQ(variable("HOME"), "(unset)");
  EXPECT_EQ(variable("LANG"), "C");
}

TEST(ProfileReaderTest, JudgesWhatTwoFilesSayTogether) {
  // The parent allows hosts; the child only turns the mode off.
  const Profile parent = OnTop("network: {mode: allowlist, allow: [example.org]}\nseccomp: {allow: [bpf]}\n");
  const auto child = [&](const std::string& yaml) {
    const Result<YamlNode> document = ReadYaml("version: 1\nname: child\n" + yaml, "c");
    const Result<Profile> profile = ReadProfile(*document, "c", parent);
    return profile ? "accepted" : profile.error().message;
  };
  EXPECT_EQ(child("network: {mode: none}"), "c:3:10: hosts are allowed but the mode is none");
  EXPECT_EQ(child("network: {mode: none, allow: []}"), "accepted");
  EXPECT_EQ(child("network: {allow: [example.com]}"), "accepted");
  EXPECT_EQ(child("seccomp: {deny: [bpf]}"), "c:3:10: \"bpf\" is both allowed and denied");
  EXPECT_EQ(child("mounts: [{source: /srv, target: /libx32x}]"), "accepted");
  EXPECT_EQ(child("system_paths: [/opt]\nmounts: [{source: /srv, target: /opt/a}]"),
            "c:4:9: the target \"/opt/a\" contradicts the system path \"/opt\"");
}

TEST(ProfileReaderTest, ReadsLimitsInTheirUnits) {
  const auto read = [](const char* name, const char* text) {
    for (const LimitField& field : kLimitFields) {
      if (std::string(name) == field.name) {
        const Result<int64_t> value = ReadLimit(field, text);
        return value ? *value : -1;
      }
    }
    return int64_t{-2};
  };
  EXPECT_EQ(read("command_timeout_ms", "1500"), 1500);
  EXPECT_EQ(read("command_timeout_ms", "1.5s"), 1500);
  EXPECT_EQ(read("command_timeout_ms", "1.5"), -1);  // the unit is missing
  EXPECT_EQ(read("command_timeout_ms", ".5"), -1);
  EXPECT_EQ(read("command_timeout_ms", ""), -1);
  EXPECT_EQ(read("command_timeout_ms", "366000000h"), -1);
  EXPECT_EQ(read("cpu", "1.5"), 1500);
  EXPECT_EQ(read("cpu", "9m"), -1);
  EXPECT_EQ(read("memory_bytes", "4M"), 4 << 20);
  EXPECT_EQ(read("memory_bytes", "4095K"), -1);
  EXPECT_EQ(read("processes", "1.0"), -1);
  for (const LimitField& field : kLimitFields) {
    if (field.unit == LimitUnit::kMilliCpus) continue;
    EXPECT_TRUE(ReadLimit(field, std::to_string(field.least))) << field.name;
    EXPECT_TRUE(ReadLimit(field, std::to_string(field.most))) << field.name;
    EXPECT_FALSE(ReadLimit(field, std::to_string(field.least - 1))) << field.name;
    EXPECT_FALSE(ReadLimit(field, std::to_string(field.most + 1))) << field.name;
  }
}

TEST(ProfileReaderTest, SaysWhatWasProbablyMeant) {
  EXPECT_EQ(Fault("namespace: []"), "mine.yaml:3:1: unknown key \"namespace\"; did you mean \"namespaces\"?");
  for (const char* name : {"kill", "wait4", "exit_group", "vfork", "recvmsg", "prctl"}) {
    const std::string fault = Fault(std::string("seccomp: {deny: [") + name + "]}");
    EXPECT_NE(fault.find(std::string("\"") + name + "\" cannot be denied"), std::string::npos) << fault;
  }
  EXPECT_EQ(Fault("seccomp: {deny: [ptrase]}"),
            "mine.yaml:3:18: \"ptrase\" is no system call of this architecture; did you mean \"ptrace\"?");
  EXPECT_EQ(FaultInSyscallName("openat"), std::nullopt);
}

TEST(ProfileReaderTest, EtcHasSecrets) {
  for (const char* path :
       {"/etc", "/etc/", "/etc/shadow", "/etc/ssl", "/etc/ssl/private/key.pem", "/etc/hosts", "/usr"})
    EXPECT_NE(Fault(std::string("etc_paths: [") + path + "]"), "accepted") << path;
  for (const char* path : {"/etc/ssl/certs", "/etc/sshd", "/etc/hosts.deny"})
    EXPECT_EQ(Fault(std::string("etc_paths: [") + path + "]"), "accepted") << path;
}

class ProfileStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-profiles-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& extends, const std::string& more = "") {
    std::ofstream(directory_ / (name + ".yaml")) << "version: 1\nname: " << name << "\nextends: " << extends << "\n"
                                                 << more;
  }
  std::filesystem::path directory_;
};

TEST_F(ProfileStoreTest, FindsByNameAndNeverByPath) {
  Write("mine", "strict");
  Write("child", "mine", "limits: {processes: 3}\n");
  const ProfileStore store(directory_);
  EXPECT_EQ(store.Find("balanced")->name, "balanced");
  const Result<Profile> child = store.Find("child");
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_EQ(child->limits.processes, 3);
  EXPECT_EQ(child->built_in, "strict");
  for (const std::string name : {"", ".", "..", "../mine", "mine.yaml", "/etc/passwd", "missing"})
    EXPECT_FALSE(store.Find(name)) << name;
  EXPECT_FALSE(store.Find(directory_ / "mine.yaml"));
  EXPECT_TRUE(store.FindOrLoad(directory_ / "mine.yaml"));
  EXPECT_EQ(store.Names(), (std::vector<std::string>{"balanced", "session", "strict", "child", "mine"}));
}

TEST_F(ProfileStoreTest, EndsEveryChain) {
  Write("a", "b");
  Write("b", "a");
  Write("self", "self");
  for (int i = 0; i < 9; ++i) Write("c" + std::to_string(i), i == 0 ? "balanced" : "c" + std::to_string(i - 1));
  const ProfileStore store(directory_);
  EXPECT_NE(store.Find("a").error().message.find("circle: a -> b -> a"), std::string::npos);
  EXPECT_NE(store.Find("self").error().message.find("circle: self -> self"), std::string::npos);
  EXPECT_TRUE(store.Find("c7"));
  EXPECT_NE(store.Find("c8").error().message.find("too deep"), std::string::npos);
}

}  // namespace
}  // namespace caisson::policy
