#include "sandbox/dns.h"

#include <gtest/gtest.h>

namespace caisson::sandbox {
namespace {

std::vector<uint8_t> Query(const std::vector<std::string>& labels, uint16_t type) {
  std::vector<uint8_t> packet = {0x12, 0x34, 0x01, 0x20, 0, 1, 0, 0, 0, 0, 0, 1};
  for (const std::string& label : labels) {
    packet.push_back(static_cast<uint8_t>(label.size()));
    packet.insert(packet.end(), label.begin(), label.end());
  }
  packet.push_back(0);
  for (const int byte : {type >> 8, type & 255, 0, 1}) packet.push_back(static_cast<uint8_t>(byte));
  return packet;
}

TEST(Dns, ReadsTheName) {
  const auto question = ParseDnsQuery(Query({"www", "example", "org"}, 28));
  ASSERT_TRUE(question);
  EXPECT_EQ(question->name, "www.example.org");
  EXPECT_EQ(question->type, 28);
}

TEST(Dns, EscapesWhatIsNotAHostName) {
  const auto question = ParseDnsQuery(Query({std::string("a\x1b[31m.\0b", 9)}, 1));
  ASSERT_TRUE(question);
  EXPECT_EQ(question->name, "a\\027\\09131m\\046\\000b");
}

TEST(Dns, AnswersThatThereIsNoSuchName) {
  std::vector<uint8_t> query = Query({"x"}, 1);
  query.insert(query.end(), {0, 0, 41, 4, 0});  // the additional record resolvers send along
  const std::vector<uint8_t> answer = MakeNoSuchName(query);
  ASSERT_EQ(answer.size(), 12U + 3 + 4);
  EXPECT_EQ(answer[0], 0x12);
  EXPECT_EQ(answer[2] & 0x80, 0x80);
  EXPECT_EQ(answer[3] & 0x0f, 3);
  EXPECT_EQ(answer[11], 0);  // nothing of the additional record
}

TEST(Dns, RefusesEveryTruncation) {
  const std::vector<uint8_t> query = Query({"www", "example", "org"}, 1);
  for (size_t size = 0; size < query.size(); ++size) {
    EXPECT_FALSE(ParseDnsQuery(std::span(query.data(), size))) << size;
    EXPECT_TRUE(MakeNoSuchName(std::span(query.data(), size)).empty()) << size;
  }
}

TEST(Dns, RefusesPointersResponsesAndCrowds) {
  std::vector<uint8_t> pointer = Query({"a"}, 1);
  pointer[12] = 0xc0;
  EXPECT_FALSE(ParseDnsQuery(pointer));
  std::vector<uint8_t> response = Query({"a"}, 1);
  response[2] |= 0x80;
  EXPECT_FALSE(ParseDnsQuery(response));
  std::vector<uint8_t> two = Query({"a"}, 1);
  two[5] = 2;
  EXPECT_FALSE(ParseDnsQuery(two));
  EXPECT_FALSE(ParseDnsQuery(
      Query({std::string(63, 'a'), std::string(63, 'b'), std::string(63, 'c'), std::string(63, 'd')}, 1)));
}

}  // namespace
}  // namespace caisson::sandbox
