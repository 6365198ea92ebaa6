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
  query.insert(query.end(), {0, 0, 41, 4, 0});  // the additional record that resolvers add
  const std::vector<uint8_t> answer = MakeNoSuchName(query);
  ASSERT_EQ(answer.size(), 12U + 3 + 4);
  EXPECT_EQ(answer[0], 0x12);
  EXPECT_EQ(answer[2] & 0x80, 0x80);
  EXPECT_EQ(answer[3] & 0x0f, 3);
  EXPECT_EQ(answer[11], 0);  // nothing of the additional record
}

std::vector<std::string> Labels(std::string_view name) {
  std::vector<std::string> labels(1);
  for (const char c : name) {
    if (c == '.')
      labels.emplace_back();
    else
      labels.back() += c;
  }
  return labels;
}

std::string Zeros(int count, const std::string& end) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "0.";
  return text + end;
}

TEST(Dns, AnswersAboutTheSandboxItself) {
  constexpr uint16_t kA = 1, kPtr = 12, kMx = 15, kAaaa = 28;
  const std::string any6 = Zeros(32, "ip6.arpa"), own6 = "1." + Zeros(31, "ip6.arpa");
  struct Case {
    std::string name;
    uint16_t type;
    size_t data;  // bytes of the one record; 0: there is none
    uint8_t last;
  };
  for (const Case& c : std::vector<Case>{{"caisson", kA, 4, 1},
                                         {"CAISSON", kAaaa, 16, 1},
                                         {"caisson", kMx, 0, 0},
                                         {"localhost", kA, 4, 1},
                                         {"www.app.localhost", kAaaa, 16, 1},
                                         {"ip6-loopback", kA, 4, 1},
                                         {"ip6-localhost", kAaaa, 16, 1},
                                         {"1.0.0.127.in-addr.arpa", kPtr, 11, 0},
                                         {"255.255.9.127.in-addr.arpa", kPtr, 11, 0},
                                         {"1.0.0.127.in-addr.arpa", kA, 0, 0},
                                         {own6, kPtr, 11, 0},
                                         {any6, kPtr, 11, 0}}) {
    const std::vector<uint8_t> query = Query(Labels(c.name), c.type);
    const auto answer = AnswerLocally(query, "caisson");
    ASSERT_TRUE(answer) << c.name;
    EXPECT_EQ((*answer)[2] & 0x80, 0x80);
    EXPECT_EQ((*answer)[3] & 0x0f, 0);
    EXPECT_EQ((*answer)[7], c.data == 0 ? 0 : 1) << c.name;
    EXPECT_EQ(answer->size(), query.size() + (c.data == 0 ? 0 : 12 + c.data)) << c.name;
    if (c.data != 0) {
      EXPECT_EQ(answer->back(), c.last) << c.name;
    }
  }
}

TEST(Dns, LeavesEveryOtherNameToTheRecord) {
  for (const std::string name :
       {"example.org", "localhost.example.org", "notlocalhost", "caisson.example.org", "xcaisson",
        "1.0.0.10.in-addr.arpa", "x.0.0.127.in-addr.arpa", "secret.1.0.0.127.in-addr.arpa",
        "1.0.0.127.in-addr.arpa.example.org", "127.in-addr.arpa", "0.127.in-addr.arpa"})
    EXPECT_FALSE(AnswerLocally(Query(Labels(name), 1), "caisson")) << name;
  EXPECT_FALSE(AnswerLocally(Query(Labels("2." + Zeros(31, "ip6.arpa")), 12), "caisson"));
  EXPECT_FALSE(AnswerLocally(Query(Labels("1." + Zeros(30, "1.ip6.arpa")), 12), "caisson"));
  EXPECT_FALSE(AnswerLocally(Query({"a\0b.localhost"}, 1), "caisson"));  // one label with a dot in it
}

TEST(Dns, RefusesEveryTruncation) {
  const std::vector<uint8_t> query = Query({"www", "example", "org"}, 1);
  for (size_t size = 0; size < query.size(); ++size) {
    EXPECT_FALSE(ParseDnsQuery(std::span(query.data(), size))) << size;
    EXPECT_TRUE(MakeNoSuchName(std::span(query.data(), size)).empty()) << size;
    EXPECT_FALSE(AnswerLocally(std::span(query.data(), size), "www.example.org")) << size;
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
