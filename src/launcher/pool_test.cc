#include "launcher/pool.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <utility>
#include <vector>

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
  EXPECT_EQ(pool.HandOver({}, 0), Pool::kNobody);
  EXPECT_FALSE(pool.has(3));
}

// A pool whose members are simulated by this test: it holds their ends of the control sockets.
struct PoolByHand {
  explicit PoolByHand(bool on_demand) {
    Pool::Options options;
    options.most = 2;
    options.on_demand = on_demand;
    pool.emplace(options, loop, 0, [this](UniqueFd control_socket) {
      members.push_back(std::move(control_socket));
      return true;
    });
  }
  void Report(size_t member, pid_t pid) {
    ASSERT_EQ(::send(members[member].get(), &pid, sizeof(pid), 0), ssize_t{sizeof(pid)});
  }

  RunRequest MakeOpening() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    clients.emplace_back(ends[0]);
    RunRequest run_request;
    run_request.run = UniqueFd(ends[1]);
    return run_request;
  }

  linux_sys::EventLoop loop;
  std::vector<UniqueFd> members, clients;
  std::optional<Pool> pool;
};

TEST(PoolTest, ARunThatFindsNoneReadyHasOneMadeForIt) {
  PoolByHand hand(true);
  EXPECT_EQ(hand.pool->HandOver(hand.MakeOpening(), 0), Pool::kComing);
  EXPECT_EQ(hand.pool->coming(), 1U);
  EXPECT_TRUE(hand.pool->TakeBegun(1).empty());
  // The run request already waits at the member's end.
  EXPECT_TRUE(TakePassedOn(hand.members.at(0).get()).has_value());
  hand.Report(0, 77);
  EXPECT_EQ(hand.pool->TakeBegun(2), std::vector<pid_t>{77});
  EXPECT_EQ(hand.pool->coming(), 0U);
  EXPECT_EQ(hand.pool->counts().ready, 0U);  // it was created for that run and serves no other
  EXPECT_EQ(hand.pool->counts().missed, 1U);
}

TEST(PoolTest, ARunWhoseMemberDiesLosesItsConnection) {
  PoolByHand hand(true);
  EXPECT_EQ(hand.pool->HandOver(hand.MakeOpening(), 0), Pool::kComing);
  hand.members.clear();
  EXPECT_TRUE(hand.pool->AwaitBegun(1).empty());
  EXPECT_EQ(hand.pool->coming(), 0U);
  EXPECT_EQ(hand.pool->counts().died, 1U);
  char nothing;
  EXPECT_EQ(::recv(hand.clients.at(0).get(), &nothing, 1, 0), 0);
}

TEST(PoolTest, WithoutDemandARunIsNotKeptWaiting) {
  PoolByHand hand(false);
  EXPECT_EQ(hand.pool->HandOver(hand.MakeOpening(), 0), Pool::kNobody);
  EXPECT_TRUE(hand.members.empty());
}

}  // namespace
}  // namespace caisson::launcher
