#include "policy/explain.h"

#include <gtest/gtest.h>

#include "support/profiles.h"

namespace caisson::policy {
namespace {

using support::OnTop;

struct Asked {
  const char* profile;
  const char* call;
  bool allowed;
  const char* what;
  const char* rule;
};

class ExplainSyscallTest : public testing::TestWithParam<Asked> {};

TEST_P(ExplainSyscallTest, SaysWhatHappensAndWhy) {
  const Result<Explanation> explained = ExplainSyscall(OnTop(GetParam().profile), GetParam().call);
  ASSERT_TRUE(explained) << explained.error().message;
  EXPECT_EQ(explained->allowed, GetParam().allowed) << explained->what;
  EXPECT_NE(explained->what.find(GetParam().what), std::string::npos) << explained->what;
  EXPECT_NE(explained->rule.find(GetParam().rule), std::string::npos) << explained->rule;
}

INSTANTIATE_TEST_SUITE_P(
    Calls, ExplainSyscallTest,
    testing::Values(Asked{"", "read", true, "read: allowed", "seccomp.filter balanced"},
                    Asked{"", "ptrace", false, "SyscallViolation (syscall.ptrace)", "seccomp.filter balanced"},
                    Asked{"", "bpf", false, "the sandbox is killed", "seccomp.filter balanced"},
                    Asked{"", "openat", true, "let through to the other walls", "seccomp.filter balanced"},
                    Asked{"", "openat", true, "when argument 2 & 0x", "seccomp.filter balanced"},
                    Asked{"", "io_uring_setup", false, "refused with ENOSYS", "the default holds"},
                    Asked{"seccomp: {filter: strict}", "memfd_create", false, "refused with", "seccomp.filter strict"},
                    Asked{"seccomp: {allow: [ptrace]}", "ptrace", true, "ptrace: allowed", "Allowed by the profile."},
                    Asked{"seccomp: {deny: [getpriority]}", "getpriority", false, "refused with EPERM",
                          "Denied by the profile."}));

TEST(ExplainTest, RefusesWhatIsNoQuestion) {
  const Profile profile = OnTop("");
  EXPECT_NE(ExplainSyscall(profile, "ptrase").error().message.find("did you mean \"ptrace\"?"), std::string::npos);
  EXPECT_FALSE(ExplainSyscall(OnTop("seccomp: {filter: none}"), "read"));
  EXPECT_FALSE(ExplainHost(profile, "http://example.org/"));
}

TEST(ExplainTest, Hosts) {
  EXPECT_FALSE(ExplainHost(OnTop(""), "example.org")->allowed);
  EXPECT_EQ(ExplainHost(OnTop(""), "example.org")->rule, "network.mode: none");
  const Profile profile = OnTop("network: {mode: allowlist, allow: [example.org]}");
  EXPECT_TRUE(ExplainHost(profile, "example.org")->allowed);
  EXPECT_FALSE(ExplainHost(profile, "example.com")->allowed);
  EXPECT_TRUE(ExplainHost(profile, "Example.org.:443")->allowed);
  EXPECT_EQ(ExplainHost(profile, "example.org:80")->rule, "network.allow lists other ports of it");
  const Profile classes = OnTop("network: {mode: allowlist, allow: [\"class:packages:pypi\", \"*.example.org\"]}");
  EXPECT_EQ(ExplainHost(classes, "pypi.org")->rule, "network.allow has class:packages:pypi (pypi.org)");
  EXPECT_EQ(ExplainHost(classes, "a.b.example.org")->rule, "network.allow has *.example.org");
  const Profile denies = OnTop("network: {mode: allowlist, allow: [\"*.example.org\"], deny: [www.example.org]}");
  EXPECT_EQ(ExplainHost(denies, "www.example.org")->rule, "network.deny has www.example.org");
  EXPECT_FALSE(ExplainHost(classes, "example.org")->allowed);
  EXPECT_FALSE(ExplainHost(classes, "169.254.169.254:80")->allowed);
  const auto misspelt = support::ReadOnTop("network: {mode: allowlist, allow: [\"class:packages:pipy\"]}");
  ASSERT_FALSE(misspelt);
  EXPECT_NE(misspelt.error().message.find("class:packages:pypi"), std::string::npos) << misspelt.error().message;
}

TEST(ExplainTest, Paths) {
  Grants grants;
  const Result<Explanation> etc = ExplainPath(OnTop(""), "/etc", Access::kReadOnly, grants);
  ASSERT_TRUE(etc);
  EXPECT_FALSE(etc->allowed);
  EXPECT_EQ(etc->what, "refused: /etc");
  EXPECT_EQ(etc->rule, "below /etc");
  EXPECT_TRUE(ExplainPath(OnTop(""), "/usr/share", Access::kReadOnly, grants)->allowed);
  EXPECT_FALSE(ExplainPath(OnTop(""), "/usr/share", Access::kReadWrite, grants)->allowed);
  EXPECT_FALSE(ExplainPath(OnTop("project: {root_path: /srv}"), "/usr/share", Access::kReadOnly, grants)->allowed);
  const Result<Explanation> allowed = ExplainPath(OnTop("project: {root_path: /usr, allowed_paths: [{path: share}]}"),
                                                  "/usr/share", Access::kReadOnly, grants);
  EXPECT_TRUE(allowed->allowed);
  EXPECT_EQ(allowed->rule, "allowed_paths has share");
}

}  // namespace
}  // namespace caisson::policy
