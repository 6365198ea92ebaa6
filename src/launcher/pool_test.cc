#include "launcher/pool.h"

#include <gtest/gtest.h>

namespace caisson::launcher {
namespace {

TEST(DemandTest, IsThatOfTheBusiestSecondOfTheLastMinute) {
  Demand demand;
  EXPECT_EQ(demand.Busiest(5'000), 0U);
  for (const int64_t moment : {5'000, 5'300, 5'999, 6'000, 7'000}) demand.Taken(moment);
  EXPECT_EQ(demand.Busiest(7'000), 3U);
  EXPECT_EQ(demand.Busiest(64'999), 3U);
  EXPECT_EQ(demand.Busiest(65'000), 1U);
  EXPECT_EQ(demand.Busiest(67'000), 0U);
}

TEST(DemandTest, ASecondThatCameRoundAgainStartsAnew) {
  Demand demand;
  for (int i = 0; i < 5; ++i) demand.Taken(1'000);
  demand.Taken(61'000);
  EXPECT_EQ(demand.Busiest(61'000), 1U);
}

TEST(PoolTest, WithoutMembersThereIsNothingToHandOver) {
  linux_sys::EventLoop loop;
  Pool pool({}, loop, 0, nullptr);
  EXPECT_EQ(pool.Turn(0), -1);
  EXPECT_EQ(pool.HandOver({}, 0), -1);
  EXPECT_FALSE(pool.has(3));
}

}  // namespace
}  // namespace caisson::launcher
