#include "service/address_rules.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace caisson::service {
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

}  // namespace
}  // namespace caisson::service
