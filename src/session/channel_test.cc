#include "session/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "session/json_bytes.h"

namespace caisson::session {
namespace {

using nlohmann::json;

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    one.emplace(UniqueFd(ends[0]));
    other.emplace(UniqueFd(ends[1]));
  }
  std::optional<Channel> one, other;
};

TEST(Channel, CarriesMessagesAndDescriptors) {
  Pair pair;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd read_end(ends[0]);
  std::vector<UniqueFd> fds;
  fds.emplace_back(ends[1]);
  ASSERT_TRUE(pair.one->Send({{"request", "first"}}));
  ASSERT_TRUE(pair.one->Send({{"request", "second"}}, std::move(fds)));
  ASSERT_TRUE(pair.one->Send({{"request", "third"}}));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*pair.other->Receive());
  EXPECT_EQ((*pair.other->Take())->body["request"], "first");
  auto second = pair.other->Take();
  ASSERT_TRUE(second && *second);
  ASSERT_EQ((*second)->fds.size(), 1U);
  ASSERT_EQ(::write((*second)->fds[0].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 1);
  EXPECT_EQ((*pair.other->Take())->body["request"], "third");
  EXPECT_FALSE(pair.other->Take()->has_value());
  pair.one.reset();
  EXPECT_FALSE(*pair.other->Receive());
}

TEST(Channel, QueuesWhatTheSocketDoesNotTake) {
  Pair pair;
  const std::string large(size_t{4} << 20, 'x');
  ASSERT_TRUE(pair.one->Send({{"text", large}}));
  EXPECT_TRUE(pair.one->has_queued());
  std::optional<Message> message;
  while (!message) {
    ASSERT_TRUE(*pair.other->Receive());
    ASSERT_TRUE(pair.one->Flush());
    message = *pair.other->Take();
  }
  EXPECT_EQ(message->body["text"], large);
  EXPECT_FALSE(pair.one->has_queued());
}

TEST(Channel, GivesUpOnAPeerThatNeverReads) {
  Pair pair;
  const std::string large(size_t{4} << 20, 'x');
  bool refused = false;
  for (int i = 0; i < 8 && !refused; ++i) refused = !pair.one->Send({{"text", large}});
  EXPECT_TRUE(refused);
}

TEST(Channel, RefusesDamage) {
  const auto frame = [](uint32_t bytes, uint32_t fds, const std::string& body) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &bytes, 4);
    std::memcpy(text.data() + 4, &fds, 4);
    return text + body;
  };
  for (const std::string& text : {frame(UINT32_MAX, 0, ""), frame(2, 1, "{}"), frame(2, 5, "{}"), frame(2, 0, "[]"),
                                  frame(3, 0, "{},"), frame(7, 0, R"({"a":1)"), frame(14, 0, R"({"a":1,"a":2})")}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    Channel channel{UniqueFd(ends[0])};
    const UniqueFd other(ends[1]);
    ASSERT_EQ(::write(other.get(), (text + " ").data(), text.size() + 1), static_cast<ssize_t>(text.size() + 1));
    ASSERT_TRUE(channel.Receive());
    EXPECT_FALSE(channel.Take()) << text.substr(8);
  }
}

TEST(JsonBytes, CarriesEveryByte) {
  for (const std::string& bytes : {std::string("plain"), std::string("\xff"), std::string("\xff\xfe"),
                                   std::string("a\xff\x01z"), std::string(), std::string("é\n")}) {
    const auto again = BytesFromJson(json::parse(BytesToJson(std::string_view(bytes)).dump()), "x");
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, bytes);
  }
  EXPECT_FALSE(BytesFromJson({{"base64", "AA=="}}, "x"));  // NUL
  EXPECT_FALSE(BytesFromJson({{"base64", "?"}}, "x"));
  EXPECT_FALSE(BytesFromJson(1, "x"));
}

}  // namespace
}  // namespace caisson::session
