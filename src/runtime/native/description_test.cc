#include "runtime/native/description.h"

#include <gtest/gtest.h>

#include "support/profiles.h"
#include "support/removed_walls.h"

namespace caisson::runtime::native {
namespace {

TEST(NativeDescriptionTest, NeedsTheWallsThatHaveNoSecondOneBehindThem) {
  const policy::RuntimeDescription native = DescribeNative();
  for (const support::Removed& one : support::kRemoved) {
    EXPECT_EQ(native.NeedsWall(one.wall), !one.native_runs) << one.wall;
    const policy::Profile profile = support::OnTop(one.yaml, one.parent);
    EXPECT_EQ(FindObstacle(native, profile, profile.limits, {}).empty(), one.native_runs) << one.wall;
  }
}

TEST(NativeDescriptionTest, RunsTheBuiltInProfiles) {
  const policy::RuntimeDescription native = DescribeNative();
  for (const policy::Profile& profile : policy::BuiltInProfiles())
    EXPECT_EQ(FindObstacle(native, profile, profile.limits, {}), "") << profile.name;
}

}  // namespace
}  // namespace caisson::runtime::native
