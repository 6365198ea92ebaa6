#include "sandbox/network_record.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::sandbox {
namespace {

using egress::control::Event;

Event Make(uint8_t what, bool allowed, std::string name, std::string reason) {
  Event event;
  event.what = what;
  event.allowed = allowed ? 1 : 0;
  event.name = std::move(name);
  event.reason = std::move(reason);
  return event;
}

TEST(NetworkRecord, AConnectionIsCountedOnceAndItsBytesWhenItEnds) {
  NetworkRecord record;
  Event event = Make(Event::kOpened, true, "a.example", "allowed");
  event.port = 443;
  EXPECT_FALSE(record.Add(event));
  event.what = Event::kClosed;
  event.reason = "reset";
  event.bytes_in = 7;
  event.bytes_out = UINT64_MAX;
  EXPECT_FALSE(record.Add(event));
  const std::vector<NetworkUse> uses = record.Take();
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].connections, 1);
  EXPECT_EQ(uses[0].bytes_in, 7);
  EXPECT_EQ(uses[0].bytes_out, INT64_MAX);
  EXPECT_EQ(uses[0].reason, "allowed");
}

TEST(NetworkRecord, ADenialIsAViolationWithItsName) {
  NetworkRecord record;
  std::optional<Violation> violation = record.Add(Make(Event::kLookup, false, "evil.example", "not_listed"));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->violation_class, ViolationClass::kNetworkAccess);
  EXPECT_EQ(violation->reason, "net.dns");
  EXPECT_EQ(violation->evidence[0], (std::pair<std::string, EvidenceValue>("name", "evil.example")));
  Event repeated = Make(Event::kLookup, false, "evil.example", "not_listed");
  repeated.count = 5;
  violation = record.Add(repeated);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->count, 4);
  EXPECT_EQ(record.Take()[0].connections, 5);
}

TEST(NetworkRecord, StaysSmallWhateverItIsTold) {
  NetworkRecord record;
  for (int i = 0; i < 5000; ++i) {
    Event event = Make(Event::kOpened, true, "n" + std::to_string(i) + ".example", "allowed");
    event.address = std::to_string(i);
    record.Add(event);
  }
  int64_t connections = 0;
  const std::vector<NetworkUse> uses = record.Take();
  EXPECT_LE(uses.size(), NetworkRecord::kMaxUses + 8);
  for (const NetworkUse& use : uses) connections += use.connections;
  EXPECT_EQ(connections, 5000);
}

}  // namespace
}  // namespace caisson::sandbox
