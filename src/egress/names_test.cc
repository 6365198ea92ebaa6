#include "egress/names.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "egress/control/messages.h"
#include "egress/event_log.h"

namespace caisson::egress {
namespace {

TEST(Names, OneAddressForEachName) {
  const network::RuleSet rules = *network::RuleSet::Make({{"*.x.org", ""}, {"y.org", ""}, {"tcp://y.org:22", ""}}, {});
  Names names(rules, 100, 104, 2);
  network::Decision decision;
  const Names::Name* y = names.Allocate(*network::Host::Parse("y.org"), decision);
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(y->address, 100U);
  EXPECT_EQ(y->allowed_ports.size(), 2U);
  EXPECT_EQ(names.Allocate(*network::Host::Parse("Y.org."), decision), y);
  EXPECT_NE(names.Allocate(*network::Host::Parse("a.x.org"), decision), nullptr);
  EXPECT_NE(names.Allocate(*network::Host::Parse("b.x.org"), decision), nullptr);
  EXPECT_EQ(names.Allocate(*network::Host::Parse("c.x.org"), decision), nullptr);
  EXPECT_STREQ(decision.reason, "name_limit");
  EXPECT_NE(names.Allocate(*network::Host::Parse("a.x.org"), decision), nullptr);
  EXPECT_EQ(names.Allocate(*network::Host::Parse("z.org"), decision), nullptr);
  EXPECT_STREQ(decision.reason, "not_listed");
  EXPECT_EQ(names.Find(100), y);
  EXPECT_EQ(names.Find(103), nullptr);
}

TEST(Names, RulesThatAreAddedGiveKnownNamesFurtherPorts) {
  network::RuleSet rules = *network::RuleSet::Make({{"x.org", ""}}, {{"z.org", ""}});
  Names names(rules, 100, 200, 64);
  network::Decision decision;
  const Names::Name* asked = names.AllocateAsked(*network::Host::Parse("y.org"), decision);
  ASSERT_NE(asked, nullptr);
  rules = *network::RuleSet::Make({{"x.org", ""}, {"tcp://y.org:22", ""}, {"y.org", ""}}, {{"z.org", ""}});
  const std::vector<network::AllowedPort> added = names.AddPorts("y.org");
  ASSERT_EQ(added.size(), 1U);  // 443 is there since the question
  EXPECT_EQ(added[0].port, 22);
  EXPECT_EQ(added[0].rule, 1U);
  EXPECT_TRUE(names.AddPorts("y.org").empty());
  EXPECT_TRUE(names.AddPorts("unknown.org").empty());
  EXPECT_EQ(names.Allocate(*network::Host::Parse("y.org"), decision), asked);
}

TEST(Names, ThePoolEnds) {
  const network::RuleSet rules = *network::RuleSet::Make({{"*.x.org", ""}}, {});
  Names names(rules, 1, 3, 64);
  network::Decision decision;
  EXPECT_NE(names.Allocate(*network::Host::Parse("a.x.org"), decision), nullptr);
  EXPECT_NE(names.Allocate(*network::Host::Parse("b.x.org"), decision), nullptr);
  EXPECT_EQ(names.Allocate(*network::Host::Parse("c.x.org"), decision), nullptr);
  EXPECT_STREQ(decision.reason, "pool_exhausted");
}

TEST(Control, FramesAreReadAsTheyWereWritten) {
  control::Event event;
  event.what = control::Event::kClosed;
  event.bytes_in = 1ULL << 40;
  event.name = "web.example";
  event.reason = std::string(5000, 'r');
  const std::string frame = control::Pack(event);
  control::Event read;
  ASSERT_TRUE(control::Unpack(frame, read));
  EXPECT_EQ(read.bytes_in, event.bytes_in);
  EXPECT_EQ(read.name, "web.example");
  EXPECT_EQ(read.reason.size(), control::kMaxText);
  EXPECT_FALSE(control::Unpack(frame + "x", read));
  for (size_t size = 0; size < frame.size(); ++size) EXPECT_FALSE(control::Unpack(frame.substr(0, size), read));
  control::Bind bind;
  EXPECT_FALSE(control::Unpack(frame, bind));
}

TEST(EventLog, EqualDenialsAreCounted) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  EventLog log(theirs.get());
  control::Event event;
  event.name = "a.example";
  for (int i = 0; i < 5; ++i) log.Denied(event);
  event.name = "b.example";
  log.Denied(event);
  log.Finish();
  std::vector<uint32_t> counts;
  for (;;) {
    Result<control::Frame> frame = control::ReceiveFrame(ours.get(), MSG_DONTWAIT);
    ASSERT_TRUE(frame);
    if (frame->kind() == control::Kind::kTotals) break;
    control::Event read;
    ASSERT_TRUE(control::Unpack(frame->bytes, read));
    counts.push_back(read.count);
  }
  EXPECT_EQ(counts, (std::vector<uint32_t>{1, 1, 5}));
}

}  // namespace
}  // namespace caisson::egress
