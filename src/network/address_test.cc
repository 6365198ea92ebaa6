#include "network/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace caisson::network {
namespace {

bool Allowed(const AddressRules& rules, const char* text) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (::inet_pton(AF_INET, text, &four.sin_addr) == 1) return rules.Allows(reinterpret_cast<sockaddr*>(&four));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &six.sin6_addr), 1) << text;
  return rules.Allows(reinterpret_cast<sockaddr*>(&six));
}

TEST(AddressRules, OnlyThePublicInternetByDefault) {
  const AddressRules rules = *AddressRules::Make({});
  for (const char* text : {"1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.0", "2606:4700::1111", "2a00::1"})
    EXPECT_TRUE(Allowed(rules, text)) << text;
  for (const char* text : {"127.0.0.1",
                           "127.255.0.9",
                           "0.0.0.0",
                           "10.0.0.1",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "169.254.169.254",
                           "100.64.0.1",
                           "100.127.255.255",
                           "198.18.0.1",
                           "192.0.2.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "240.0.0.1",
                           "::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "::ffff:169.254.169.254",
                           "fe80::1",
                           "fc00::1",
                           "fd00:ec2::254",
                           "ff02::1",
                           "64:ff9b::7f00:1",
                           "2001::1",
                           "2001:db8::1",
                           "2002:7f00:1::",
                           "::127.0.0.1"})
    EXPECT_FALSE(Allowed(rules, text)) << text;
}

TEST(AddressRules, TheOperatorCanAllowMore) {
  const AddressRules rules = *AddressRules::Make({"10.1.0.0/16", "::1", "192.168.7.0/25"});
  for (const char* text : {"10.1.0.0", "10.1.255.255", "::1", "::ffff:10.1.2.3", "192.168.7.127"})
    EXPECT_TRUE(Allowed(rules, text)) << text;
  for (const char* text : {"10.2.0.0", "10.0.255.255", "127.0.0.1", "::2", "192.168.7.128"})
    EXPECT_FALSE(Allowed(rules, text)) << text;
}

TEST(AddressRules, RefusesWhatIsNoRange) {
  for (const char* text : {"", "x", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8"})
    EXPECT_FALSE(AddressRules::Make({text})) << text;
}

TEST(AddressRules, MetadataIsNeverGranted) {
  const AddressRules rules = *AddressRules::Make({"0.0.0.0/0", "::/0"});
  EXPECT_TRUE(Allowed(rules, "127.0.0.1"));
  EXPECT_TRUE(Allowed(rules, "169.254.1.1"));
  for (const char* text : {"169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192",
                           "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
                           "::169.254.169.254", "2001:0:4136:e378:8000:63bf:5601:5601"})
    EXPECT_FALSE(Allowed(rules, text)) << text;
}

TEST(Address, HasOneClass) {
  const std::pair<const char*, const char*> cases[] = {
      {"1.1.1.1", "public"},
      {"0.1.2.3", "unspecified"},
      {"127.8.8.8", "loopback"},
      {"10.0.0.1", "private"},
      {"172.31.0.1", "private"},
      {"192.168.0.1", "private"},
      {"169.254.0.1", "link_local"},
      {"100.64.0.1", "shared"},
      {"169.254.169.254", "metadata"},
      {"224.0.0.1", "multicast"},
      {"198.19.255.255", "benchmark"},
      {"240.0.0.1", "reserved"},
      {"192.0.2.1", "reserved"},
      {"::", "unspecified"},
      {"::1", "loopback"},
      {"fe80::1", "link_local"},
      {"fc00::1", "private"},
      {"ff02::1", "multicast"},
      {"2606:4700::1", "public"},
      {"64:ff9b::808:808", "public"},
      {"64:ff9b::a00:1", "private"},
      {"64:ff9b:1::a00:1", "private"},
      {"2002:a00:1::1", "private"},
      {"2002:808:808::1", "reserved"},
      {"::ffff:10.0.0.1", "private"},
      {"::ffff:0:10.0.0.1", "private"},
      {"::7f00:1", "loopback"},
      {"2001:db8::1", "reserved"},
      {"4000::1", "reserved"},
      {"2001:0:1:2:3:4:f5ff:fffe", "private"},
  };
  for (const auto& [text, name] : cases) EXPECT_STREQ(ClassName(Classify(*Address::Parse(text))), name) << text;
}

TEST(Address, IsReadStrictly) {
  for (const char* text : {"", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "1.2.3", "1.2.3.4.5", "1.2.3.4 ",
                           "fe80::1%lo", "[::1]", "1.2.3.256", ":::"})
    EXPECT_FALSE(Address::Parse(text)) << text;
  EXPECT_FALSE(Address::Parse(std::string_view("1.2.3.4\0", 8)));
  EXPECT_EQ(Address::Parse("2001:DB8:0::1")->Text(), "2001:db8::1");
  EXPECT_EQ(Address::Parse("::ffff:1.2.3.4")->Text(), "1.2.3.4");
}

}  // namespace
}  // namespace caisson::network
