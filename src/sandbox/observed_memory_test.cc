#include "sandbox/observed_memory.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <climits>
#include <cstring>
#include <limits>
#include <string>

namespace caisson::sandbox {
namespace {

constexpr uint64_t kBase = 0x10000;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

// Memory that begins at kBase and ends with `bytes`.
ReadMemory Holding(std::string bytes) {
  return [bytes = std::move(bytes)](uint64_t address, void* to, size_t size) {
    if (address < kBase || address - kBase > bytes.size() || size > bytes.size() - (address - kBase)) return false;
    std::memcpy(to, bytes.data() + (address - kBase), size);
    return true;
  };
}

std::string Ipv4(const char* address, uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &in.sin_addr);
  return std::string(reinterpret_cast<const char*>(&in), sizeof(in));
}

TEST(ReadPath, ReadsUpToTheLastMappedByte) {
  const std::string page = std::string(4096 - 5, 'x') + std::string("/etc\0", 5);
  EXPECT_EQ(ReadPath(Holding(page), kBase + 4096 - 5), "/etc");
  EXPECT_EQ(ReadPath(Holding(std::string(4096, 'x')), kBase), std::nullopt);
  EXPECT_EQ(ReadPath(Holding(page), 0), std::nullopt);
}

TEST(ReadPath, TakesNoMoreThanTheKernelDoes) {
  const auto read = [](size_t length) {
    std::string pages(3 * 4096, '\0');
    pages.replace(100, length, length, 'x');
    return ReadPath(Holding(pages), kBase + 100);
  };
  EXPECT_EQ(read(PATH_MAX - 1), std::string(PATH_MAX - 1, 'x'));
  EXPECT_EQ(read(PATH_MAX), std::nullopt);
}

TEST(FindOutsidePeer, LooksAtEveryMessage) {
  std::string memory(1024, '\0');
  memory.replace(512, sizeof(sockaddr_in), Ipv4("127.0.0.1", 80));
  memory.replace(768, sizeof(sockaddr_in), Ipv4("1.2.3.4", 443));
  struct mmsghdr messages[2] = {};
  for (int i = 0; i < 2; ++i) {
    messages[i].msg_hdr.msg_name = reinterpret_cast<void*>(kBase + 512 + 256 * static_cast<uint64_t>(i));
    messages[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
  }
  memory.replace(0, sizeof(messages), std::string(reinterpret_cast<const char*>(messages), sizeof(messages)));
  const AddressCall& call = *FindAddressCall(SYS_sendmmsg);
  const __u64 two[6] = {3, kBase, 2}, one[6] = {3, kBase, 1};
  const auto peer = FindOutsidePeer(Holding(memory), call, two);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->address, "1.2.3.4");
  EXPECT_EQ(peer->port, 443);
  EXPECT_FALSE(FindOutsidePeer(Holding(memory), call, one).has_value());
}

TEST(AllocatesMoreThan, AddsWithoutOverflow) {
  const auto asks = [](int64_t offset, int64_t length) {
    const __u64 args[6] = {3, 0, static_cast<__u64>(offset), static_cast<__u64>(length)};
    return AllocatesMoreThan(100, args);
  };
  EXPECT_FALSE(asks(0, 100));
  EXPECT_TRUE(asks(1, 100));
  EXPECT_TRUE(asks(kHuge, kHuge));
  EXPECT_TRUE(asks(kHuge, 1));
  EXPECT_FALSE(asks(-1, 100));
  EXPECT_FALSE(asks(0, std::numeric_limits<int64_t>::min()));
}

}  // namespace
}  // namespace caisson::sandbox
