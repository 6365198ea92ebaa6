#include "policy/overrides.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace caisson::policy {
namespace {

constexpr int64_t kEnd = 1000;
const LimitField& kMemory = kLimitFields[3];
const LimitField& kProcesses = kLimitFields[4];

Override Make(const char* id, Grant grant) {
  Override one;
  one.id = id;
  one.role = "builder";
  one.grant = std::move(grant);
  one.expires_at = kEnd;
  return one;
}

std::vector<std::string> UsedIds(const Grants& grants) {
  std::vector<std::string> ids;
  for (const Override& one : grants.used()) ids.push_back(one.id);
  return ids;
}

TEST(OverridesTest, HoldForTheirOwnerUntilTheirEnd) {
  Override by_request = Make("r", AllowNetwork{"example.org"});
  by_request.role.clear();
  by_request.request = "req-1";
  const std::vector<Override> all = {Make("a", WritePath{"/srv"}), by_request};
  struct Case {
    const char* role;
    const char* request;
    int64_t now;
    bool write, reach;
  };
  for (const Case& one : {Case{"builder", "", 0, true, false}, Case{"builder", "", kEnd - 1, true, false},
                          Case{"builder", "", kEnd, false, false}, Case{"builder", "req-1", kEnd + 1, false, false},
                          Case{"Builder", "", 0, false, false}, Case{"build", "", 0, false, false},
                          Case{"", "", 0, false, false}, Case{"", "req-1", 0, false, true},
                          Case{"", "req-12", 0, false, false}, Case{"req-1", "builder", 0, false, false}}) {
    Grants grants(all, one.role, one.request, one.now);
    EXPECT_EQ(grants.MayWrite("/srv"), one.write) << one.role << " " << one.request << " " << one.now;
    EXPECT_EQ(grants.MayReach("example.org"), one.reach) << one.role << " " << one.request << " " << one.now;
  }
}

TEST(OverridesTest, CoverWhatTheyNameAndNoMore) {
  Grants grants({Make("limit", RaiseLimit{&kMemory, 100}), Make("write", WritePath{"/srv/out"}),
                 Make("etc", SensitivePath{"/etc/ssl", Access::kCopyOnWrite}), Make("net", AllowNetwork{"a.org:443"})},
                "builder", "", 0);
  EXPECT_TRUE(grants.MayRaise(kMemory, 100));
  EXPECT_FALSE(grants.MayRaise(kMemory, 101));
  EXPECT_FALSE(grants.MayRaise(kProcesses, 1));
  for (const char* path : {"/srv/out", "/srv/out/deep/er"}) EXPECT_TRUE(grants.MayWrite(path)) << path;
  for (const char* path : {"/srv", "/srv/out2", "/srv/ou", "/", "/etc/ssl"})
    EXPECT_FALSE(grants.MayWrite(path)) << path;
  EXPECT_TRUE(grants.MayShowSensitive("/etc/ssl", Access::kReadOnly));
  EXPECT_TRUE(grants.MayShowSensitive("/etc/ssl", Access::kCopyOnWrite));
  EXPECT_FALSE(grants.MayShowSensitive("/etc/ssl", Access::kReadWrite));
  for (const char* path : {"/etc", "/etc/ssl/certs", "/etc/ssl2", "/"})  // the exact place only
    EXPECT_FALSE(grants.MayShowSensitive(path, Access::kReadOnly)) << path;
  EXPECT_TRUE(grants.MayReach("a.org:443"));
  EXPECT_FALSE(grants.MayReach("a.org"));
}

TEST(OverridesTest, RootIsAboveEverything) {
  Grants grants({Make("all", WritePath{"/"})}, "builder", "", 0);
  EXPECT_TRUE(grants.MayWrite("/"));
  EXPECT_TRUE(grants.MayWrite("/srv/out"));
}

TEST(OverridesTest, NoteEachUseOnce) {
  Grants grants(
      {Make("unused", WritePath{"/other"}), Make("first", WritePath{"/srv"}), Make("second", WritePath{"/srv/a"}),
       Make("call", AllowSyscall{"bpf"}), Make("call", AllowSyscall{"ptrace"})},
      "builder", "", 0);
  EXPECT_FALSE(grants.MayWrite("/usr"));
  EXPECT_TRUE(grants.used().empty());
  EXPECT_TRUE(grants.MayWrite("/srv/a"));
  EXPECT_TRUE(grants.MayWrite("/srv/b"));
  EXPECT_EQ(UsedIds(grants), std::vector<std::string>{"first"});
  EXPECT_EQ(grants.AllowedSyscalls(), (std::vector<std::string>{"bpf", "ptrace"}));
  EXPECT_EQ(grants.AllowedSyscalls().size(), 2u);
  EXPECT_EQ(UsedIds(grants), (std::vector<std::string>{"first", "call", "call"}));  // one id, two grants
}

TEST(OverridesTest, TheCommandLineGrantsToItself) {
  Grants grants;
  EXPECT_FALSE(grants.MayRaise(kMemory, 5));
  grants.AddFromCommandLine(RaiseLimit{&kMemory, 5}, "--memory");
  EXPECT_TRUE(grants.MayRaise(kMemory, 5));
  ASSERT_EQ(grants.used().size(), 1u);
  EXPECT_EQ(grants.used()[0].id, kCommandLineId);
  EXPECT_EQ(grants.used()[0].granted_by, "uid " + std::to_string(::getuid()));
  EXPECT_NE(grants.used()[0].reason.find("--memory"), std::string::npos);
}

TEST(OverridesTest, AreDescribedByTypeAndContent) {
  const std::pair<Grant, const char*> cases[] = {{RaiseLimit{&kMemory, 7}, "raise_limit memory_bytes to 7"},
                                                 {WritePath{"/srv"}, "write_path /srv"},
                                                 {SensitivePath{"/etc", Access::kReadWrite}, "sensitive_path /etc:rw"},
                                                 {AllowSyscall{"bpf"}, "allow_syscall bpf"},
                                                 {AllowNetwork{"a.org"}, "allow_network a.org"}};
  for (const auto& [grant, text] : cases) EXPECT_EQ(KindOf(grant) + (" " + Describe(grant)), text);
}

}  // namespace
}  // namespace caisson::policy
