#include "policy/losses.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "policy/profile_json.h"
#include "support/profiles.h"

namespace caisson::policy {
namespace {

using support::OnTop;

// One wall taken down, and nothing else.
struct Removed {
  const char* parent;
  const char* yaml;
  const char* wall;
  bool can_run;
};

const Removed kRemoved[] = {
    {"balanced", "namespaces: [pid, mount, network, ipc, uts, cgroup, time]", "namespaces.user", false},
    {"balanced", "namespaces: [user, mount, network, ipc, uts, cgroup, time]", "namespaces.pid", false},
    {"balanced", "namespaces: [user, pid, network, ipc, uts, cgroup, time]", "namespaces.mount", false},
    {"balanced", "namespaces: [user, pid, mount, ipc, uts, cgroup, time]", "namespaces.network", false},
    {"balanced", "namespaces: [user, pid, mount, network, uts, cgroup, time]", "namespaces.ipc", true},
    {"balanced", "namespaces: [user, pid, mount, network, ipc, cgroup, time]", "namespaces.uts", true},
    {"balanced", "namespaces: [user, pid, mount, network, ipc, uts, time]", "namespaces.cgroup", true},
    {"balanced", "namespaces: [user, pid, mount, network, ipc, uts, cgroup]", "namespaces.time", true},
    {"strict", "tier: native", "tier", true},
    {"balanced", "system_paths: [/usr, /opt]", "system_paths./opt", true},
    {"balanced", "etc_paths: [/etc/ssl/certs]", "etc_paths./etc/ssl/certs", true},
    {"strict", "proc: {subset: all, masked_files: [], masked_directories: []}", "proc.subset", true},
    {"balanced", "proc: {masked_files: [kcore, kmsg, sysrq-trigger, keys, key-users, kallsyms, interrupts, iomem]}",
     "proc.masked_files.modules", true},
    {"balanced", "proc: {masked_directories: [acpi, asound, bus, driver, fs, irq]}", "proc.masked_directories.scsi",
     true},
    {"balanced", "mounts: [{source: /srv, target: /data}]", "mounts./data", true},
    {"balanced", "mounts: [{source: /srv, target: /data, access: rw}]", "mounts./data", true},
    {"balanced", "workspace: cow", "workspace", true},
    {"balanced", "seccomp: {filter: none}", "seccomp.filter", false},
    {"strict", "seccomp: {filter: balanced}", "seccomp.filter", true},
    {"balanced", "seccomp: {allow: [ptrace]}", "seccomp.allow.ptrace", true},
    {"balanced", "landlock: false", "landlock", true},
    {"balanced", "capabilities: [CAP_KILL]", "capabilities.CAP_KILL", false},
    {"balanced", "no_new_privileges: false", "no_new_privileges", false},
    {"balanced", "limits: {command_timeout_ms: 46s}", "limits.command_timeout_ms", true},
    {"balanced", "limits: {budget_ms: 181s}", "limits.budget_ms", true},
    {"balanced", "limits: {cpu: 2.001}", "limits.cpu", true},
    {"balanced", "limits: {memory_bytes: 1025MiB}", "limits.memory_bytes", true},
    {"balanced", "limits: {processes: 257}", "limits.processes", true},
    {"balanced", "limits: {output_bytes: 11MiB}", "limits.output_bytes", true},
    {"balanced", "limits: {scratch_bytes: 513MiB}", "limits.scratch_bytes", true},
    {"balanced", "limits: {scratch_inodes: 65537}", "limits.scratch_inodes", true},
    {"balanced", "network: {mode: allowlist}", "network.mode", false},
    {"balanced", "ignored_writes: [src]", "ignored_writes.src", true},
    {"balanced", "on_violation: report", "on_violation", true},
    {"balanced", "allow_degraded: [cgroup, landlock]", "allow_degraded.landlock", true},
    {"strict", "start: zygote", "start", true},
    {"strict", "allow_degraded: [cgroup]", "allow_degraded.cgroup", true},
};

class LossTest : public testing::TestWithParam<Removed> {};

TEST_P(LossTest, IsExactlyTheWallThatIsGone) {
  const std::vector<Loss> losses = FindLosses(OnTop(GetParam().yaml, GetParam().parent));
  ASSERT_EQ(losses.size(), 1u) << GetParam().yaml;
  EXPECT_EQ(losses[0].wall, GetParam().wall);
  EXPECT_EQ(losses[0].can_run, GetParam().can_run);
  EXPECT_FALSE(losses[0].what.empty());
}

INSTANTIATE_TEST_SUITE_P(Walls, LossTest, testing::ValuesIn(kRemoved));

TEST(LossesTest, EveryKeyIsAWallOrKnownNotToBe) {
  std::set<std::string> known = {"version", "name", "description", "environment",
                                 // Every built-in profile has all of these already, so more cannot be given.
                                 "devices", "writable_paths"};
  for (const Removed& one : kRemoved) known.insert(std::string(one.wall).substr(0, std::string(one.wall).find('.')));
  const nlohmann::ordered_json document = ToJson(*FindBuiltIn("balanced"));
  for (const auto& item : document.items())
    EXPECT_EQ(known.count(item.key()), 1u) << item.key() << " can be changed and no test says what that gives up";
}

TEST(LossesTest, BuiltInsLoseNothing) {
  for (const Profile& profile : BuiltInProfiles()) EXPECT_TRUE(FindLosses(profile).empty()) << profile.name;
}

TEST(LossesTest, TighteningLosesNothing) {
  EXPECT_TRUE(FindLosses(OnTop("tier: microvm\nsystem_paths: [/usr]\netc_paths: []\ndevices: [\"null\"]\n"
                               "proc: {subset: pids, masked_files: [], masked_directories: []}\n"
                               "writable_paths: [/scratch]\nseccomp: {filter: strict, deny: [socket]}\n"
                               "limits: {cpu: 1, memory_bytes: 4M, processes: 1}\nignored_writes: []\n"
                               "allow_degraded: []\nproject: {root_path: /srv}\nenvironment: {A: b, HOME: null}\n"))
                  .empty());
}

TEST(LossesTest, MeasuresAgainstAnyProfile) {
  Profile base = OnTop(
      "seccomp: {deny: [socket]}\nmounts: [{source: /srv, target: /data, access: rw}]\n"
      "devices: [\"null\"]\nwritable_paths: [/scratch]\nproject: {root_path: /srv}\n");
  EXPECT_TRUE(FindLosses(base, base).empty());
  Profile profile = base;
  profile.mounts[0].access = Access::kReadOnly;  // less than before
  EXPECT_TRUE(FindLosses(profile, base).empty());
  profile.seccomp.deny.clear();
  profile.devices.emplace_back("zero");
  profile.writable_paths.emplace_back("/tmp");
  profile.project.reset();
  std::vector<std::string> walls;
  for (const Loss& loss : FindLosses(profile, base)) walls.push_back(loss.wall);
  EXPECT_EQ(walls, (std::vector<std::string>{"seccomp.deny.socket", "devices.zero", "writable_paths./tmp", "project"}));
}

}  // namespace
}  // namespace caisson::policy
