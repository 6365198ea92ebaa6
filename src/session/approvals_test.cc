#include "session/approvals.h"

#include <gtest/gtest.h>

namespace caisson::session {
namespace {

using policy::EscalationKind;

Approval Question(const std::string& what, const std::string& protocol = "tls") {
  Approval approval;
  approval.request.what = what;
  approval.protocol = protocol;
  return approval;
}

TEST(ApprovalsTest, EqualQuestionsAreOne) {
  Approvals approvals("ses_1", 1000);
  const Approval& first = approvals.Add(Question("a.test:443"), "policy", 0, 0);
  EXPECT_EQ(approvals.FindEqual(first.request, "tls"), &first);
  EXPECT_EQ(approvals.FindEqual(first.request, ""), nullptr);
  EXPECT_EQ(approvals.FindEqual(Question("b.test:443").request, "tls"), nullptr);
  EXPECT_EQ(approvals.Find(first.id), &first);
}

TEST(ApprovalsTest, AnIdStandsForOneQuestionUnderOnePolicy) {
  Approvals approvals("ses_1", 1000);
  const Approval& first = approvals.Add(Question("a.test:443"), "policy", 0, 0);
  const Approval& second = approvals.Add(Question("a.test:443"), "policy", 0, 0);
  EXPECT_NE(first.id, second.id);
  EXPECT_EQ(TokenOf(first, "ses_1", "policy"), first.token);
  EXPECT_NE(TokenOf(first, "ses_1", "another"), first.token);
  EXPECT_NE(TokenOf(first, "ses_2", "policy"), first.token);
  Approval other = first;
  other.request.what = "evil.test:443";
  EXPECT_NE(TokenOf(other, "ses_1", "policy"), first.token);
  EXPECT_EQ(first.id, "apr_" + first.token.substr(0, 16));
}

TEST(ApprovalsTest, TenInAMinute) {
  Approvals approvals("ses_1", 1000);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(approvals.MayAsk(i));
  EXPECT_FALSE(approvals.MayAsk(59'999));
  EXPECT_TRUE(approvals.MayAsk(60'000));
  EXPECT_FALSE(approvals.MayAsk(60'000));
}

TEST(ApprovalsTest, Expire) {
  Approvals approvals("ses_1", 1000);
  EXPECT_FALSE(approvals.next_expiry_ms());
  const std::string first = approvals.Add(Question("a.test:443"), "policy", 5, 0).id;
  approvals.Add(Question("b.test:443"), "policy", 10, 0);
  EXPECT_EQ(approvals.next_expiry_ms(), 1005);
  EXPECT_TRUE(approvals.TakeExpired(1004).empty());
  const std::vector<Approval> expired = approvals.TakeExpired(1005);
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired[0].id, first);
  EXPECT_EQ(approvals.TakeAll().size(), 1U);
  EXPECT_TRUE(approvals.all().empty());
}

TEST(ApprovalsTest, WhatTheWorkloadChoseIsQuoted) {
  Approval approval = Question("a\x1b[2J.test:443");
  approval.request.reason = "x\ny";
  const std::string text = TextOf(approval);
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(AskRequestTest, Lines) {
  const auto request = ParseAskRequest("network pypi.org to install requests");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->kind, EscalationKind::kNetwork);
  EXPECT_EQ(request->what, "pypi.org");
  EXPECT_EQ(request->reason, "to install requests");
  EXPECT_EQ(ParseAskRequest("time 2h")->reason, "");
  for (const std::string line :
       {"", "network", "network ", "approve x", "network \x1b[2J", "network a \x07", "Network a"})
    EXPECT_FALSE(ParseAskRequest(line)) << line;
  EXPECT_FALSE(ParseAskRequest("network a " + std::string(2000, 'x')));
}

TEST(AskRequestTest, Judgement) {
  policy::Profile profile;
  profile.approvals.kinds[0] = policy::Escalation::kAsk;
  profile.approvals.kinds[1] = policy::Escalation::kAllow;
  profile.approvals.kinds[2] = policy::Escalation::kAsk;
  const auto judge = [&](const char* line) { return JudgeAsk(*ParseAskRequest(line), profile); };
  EXPECT_FALSE(judge("network a.test"));  // no network
  profile.network.mode = policy::NetworkMode::kAllowlist;
  profile.network.deny = {"*.never.test"};
  const auto network = judge("network A.test");
  ASSERT_TRUE(network);
  EXPECT_EQ(network->entries, std::vector<std::string>{"a.test"});
  EXPECT_EQ(network->escalation, policy::Escalation::kAsk);
  const auto install = judge("install pypi");
  ASSERT_TRUE(install);
  EXPECT_EQ(install->escalation, policy::Escalation::kAllow);
  EXPECT_EQ(install->rules.size(), 2U);
  EXPECT_EQ(judge("time 90s")->more_ms, 90'000);
  for (const char* line : {"network x.never.test", "network 192.0.2.1:80", "network *", "install nothing", "time soon",
                           "time 0s", "memory 1G", "mount /srv", "host_port 80", "credential x"})
    EXPECT_FALSE(judge(line)) << line;
}

}  // namespace
}  // namespace caisson::session
