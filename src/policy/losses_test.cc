#include "policy/losses.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "policy/profile_json.h"
#include "support/profiles.h"
#include "support/removed_walls.h"

namespace caisson::policy {
namespace {

using support::kRemoved;
using support::OnTop;
using support::Removed;

class LossTest : public testing::TestWithParam<Removed> {};

TEST_P(LossTest, IsExactlyTheWallThatIsGone) {
  const std::vector<Loss> losses = FindLosses(OnTop(GetParam().yaml, GetParam().parent));
  ASSERT_EQ(losses.size(), 1u) << GetParam().yaml;
  EXPECT_EQ(losses[0].wall, GetParam().wall);
  EXPECT_FALSE(losses[0].what.empty());
}

INSTANTIATE_TEST_SUITE_P(Walls, LossTest, testing::ValuesIn(kRemoved));

TEST(LossesTest, EveryKeyIsAWallOrKnownNotToBe) {
  std::set<std::string> known = {"version", "name", "description", "environment",
                                 // Every built-in profile already has all of these, so a test cannot add more.
                                 "devices", "writable_paths"};
  for (const Removed& one : kRemoved) known.insert(std::string(one.wall).substr(0, std::string(one.wall).find('.')));
  const nlohmann::ordered_json document = ToJson(*FindBuiltIn("balanced"));
  for (const auto& item : document.items())
    EXPECT_EQ(known.count(item.key()), 1u) << item.key() << " can be changed and no test says what that gives up";
}

TEST(LossesTest, NamesWhatANetworkGivesBesidesDestinations) {
  const std::vector<Loss> losses =
      FindLosses(OnTop("network: {mode: allowlist, host_ports: [5432], credentials: [github], ask: true}", "balanced"));
  std::set<std::string> walls;
  for (const Loss& loss : losses) walls.insert(loss.wall);
  EXPECT_EQ(walls, (std::set<std::string>{"network.mode", "network.host_ports.5432", "network.credentials.github",
                                          "network.ask"}));
}

TEST(LossesTest, BuiltInsLoseNothing) {
  for (const Profile& profile : BuiltInProfiles()) EXPECT_TRUE(FindLosses(profile).empty()) << profile.name;
}

TEST(LossesTest, TighteningLosesNothing) {
  EXPECT_TRUE(FindLosses(OnTop("strength: microvm\nsystem_paths: [/usr]\netc_paths: []\ndevices: [\"null\"]\n"
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
