// The small parts: documents, metrics, callbacks' signature, watching, a live job's log.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "service/callback_sender.h"
#include "service/changes.h"
#include "service/documents.h"
#include "service/live_jobs.h"
#include "service/metrics.h"
#include "service/network_quota.h"
#include "verify/approval.h"
#include "verify/job_message.h"

namespace caisson::service {
namespace {

using nlohmann::json;

TEST(Documents, ABodyIsItsMeaningAndNotItsSpelling) {
  const json one = json::parse(R"({"request_id":"a","priority":1})");
  EXPECT_EQ(RequestDigest(one), RequestDigest(json::parse(R"( {"priority": 1, "request_id": "a"} )")));
  EXPECT_EQ(RequestDigest(one), RequestDigest(json::parse(R"({"request_id":"a","priority":1,"idempotency_key":"k"})")));
  EXPECT_NE(RequestDigest(one), RequestDigest(json::parse(R"({"request_id":"a","priority":2})")));
}

TEST(Documents, JobIdsSortByTime) {
  EXPECT_LT(NewJobId(1'000), NewJobId(1'001));
  EXPECT_LT(NewJobId(0xffff), NewJobId(0x10000));
  EXPECT_NE(NewJobId(5), NewJobId(5));
  EXPECT_TRUE(verify::IsValidRequestId(NewJobId(5)));
}

TEST(Documents, ApprovalsAreAsTheirOwnReaderWantsThem) {
  verify::ApprovalRequest question;
  question.binding = {RandomHex(), "job", std::string(64, 'a'), RandomHex()};
  question.tenant = "t";
  question.requested_at = "2030-01-01T00:00:00.000Z";
  question.expires_at = "2030-01-02T00:00:00.000Z";
  question.submitter = {"token:ci", verify::Role::kSubmitter};
  question.required = {{"operator", "install", "packages run code"}};
  const Result<verify::Approval> read = verify::ParseApproval(ToText(question));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(std::get<verify::ApprovalRequest>(*read).binding, question.binding);
}

TEST(Documents, DeadLettersAreAsTheirOwnReaderWantsThem) {
  store::Job job;
  job.id = "job";
  job.tenant = "t";
  job.request = R"({"source":{"files":{"a.py":"1"}},"idempotency_key":"k"})";
  job.request_id = "r";
  job.idempotency_key = "k";
  job.attempt = job.max_attempts = 2;
  job.finished_ms = 3'000;
  const std::vector<store::Attempt> attempts = {{1, "lost_worker", "gone", "w.1", 500, 1'000},
                                                {2, "infrastructure_error", "no\nluck", "w.1", 2'000, 3'000}};
  for (const std::vector<store::Attempt>& history : {attempts, std::vector<store::Attempt>()}) {
    const Result<verify::JobMessage> read = verify::ParseJobMessage(DeadLetterText(job, job.request, history, {}, ""));
    ASSERT_TRUE(read) << read.error().message;
    const auto& letter = std::get<verify::DeadLetter>(*read);
    EXPECT_EQ(letter.history.size(), history.size());
    EXPECT_EQ(letter.reason,
              history.empty() ? verify::DeadReason::kDeadlinePassed : verify::DeadReason::kAttemptsExhausted);
    EXPECT_EQ(letter.job->request.request_id, "r");
  }
}

TEST(Metrics, AreInPrometheusFormat) {
  Metrics metrics;
  metrics.Add("caisson_results_total", "status=\"pass\",class=\"\"");
  metrics.Add("caisson_results_total", "status=\"pass\",class=\"\"", 2);
  metrics.Set("caisson_audit_usable", "", 1);
  metrics.Observe("caisson_run_seconds", 0.02);
  metrics.Observe("caisson_run_seconds", 1'000);
  const std::string text = metrics.Text();
  EXPECT_NE(text.find("# TYPE caisson_results_total counter\ncaisson_results_total{status=\"pass\",class=\"\"} 3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\ncaisson_audit_usable 1\n"), std::string::npos);
  EXPECT_NE(text.find("caisson_run_seconds_bucket{le=\"0.01\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("caisson_run_seconds_bucket{le=\"0.025\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("caisson_run_seconds_bucket{le=\"+Inf\"} 2\n"), std::string::npos);
  EXPECT_EQ(LabelValue("a\"b\\c\nd"), "a\\\"b\\\\cd");
}

// Checked with: printf '1700000000.body' | openssl dgst -sha256 -hmac secret
TEST(Callbacks, AreSignedOverTimeAndBody) {
  Document body;
  body.text = "body";
  body.bytes = 4;
  EXPECT_EQ(*CallbackSignature("secret", 1'700'000'000, body),
            "t=1700000000,v1=42ac6f0448c1d9c3e1e82b9726248f58fef84afffcbad5188246e96070e0ea46");
}

TEST(Changes, ReachThoseWhoWatchAndNobodyElse) {
  const auto changes = std::make_shared<Changes>();
  int first = 0, second = 0;
  auto one = changes->Watch("a", [&] { ++first; });
  const auto two = changes->Watch("b", [&] { ++second; });
  changes->Notify("a");
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
  one.reset();
  changes->Notify("a");
  EXPECT_EQ(first, 1);
}

TEST(LiveJob, KeepsItsOutputInOrderAndReadableFromAnywhere) {
  store::Job job;
  job.id = "j";
  const std::shared_ptr<LiveJob> live = *LiveJob::Make(job, std::make_shared<Changes>());
  live->AddOutput("stdout", "hello ");
  live->AddOutput("stderr", "world");
  const Log all = live->ReadLog(0, 100);
  ASSERT_EQ(all.chunks.size(), 2U);
  EXPECT_EQ(all.next_offset, 11);
  const Log rest = live->ReadLog(8, 100);
  ASSERT_EQ(rest.chunks.size(), 1U);
  EXPECT_EQ(rest.chunks[0].bytes, "rld");
  EXPECT_EQ(rest.chunks[0].offset, 8);
  EXPECT_TRUE(live->ReadLog(11, 100).chunks.empty());
}

TEST(LiveJob, LongOutputIsReadInPieces) {
  store::Job job;
  job.id = "j";
  const std::shared_ptr<LiveJob> live = *LiveJob::Make(job, std::make_shared<Changes>());
  std::string expected;
  for (int i = 0; i < 40'000; ++i) {
    const std::string bytes = std::to_string(i) + (i % 1'000 == 0 ? std::string(70'000, 'x') : "");
    live->AddOutput(i % 3 == 0 ? "stderr" : "stdout", bytes);
    expected += bytes;
  }
  for (const int64_t step : {int64_t{100'000}, int64_t{65'536}}) {
    std::string read;
    int64_t offset = 17;
    for (;;) {
      const Log log = live->ReadLog(offset, step);
      if (log.chunks.empty()) break;
      int64_t size = 0;
      for (const LogChunk& chunk : log.chunks) {
        EXPECT_EQ(chunk.offset, offset + size);
        size += static_cast<int64_t>(chunk.bytes.size());
        read += chunk.bytes;
      }
      ASSERT_LE(size, step);
      ASSERT_EQ(log.next_offset, offset + size);
      offset = log.next_offset;
    }
    EXPECT_TRUE(read == expected.substr(17)) << read.size() << " of " << expected.size();
  }
}

TEST(NetworkQuota, ATenantsJobsShareIt) {
  constexpr int64_t kDay = int64_t{24} * 3'600'000;
  NetworkQuota quota(10, 1'000);
  const auto limits = [](int64_t connections, int64_t bytes) {
    policy::NetworkLimits made;
    made.connections = connections;
    made.bytes = bytes;
    return made;
  };
  policy::NetworkLimits first = limits(8, 0), second = limits(8, 300), third = limits(1, 0);
  {
    const Result<NetworkQuota::Share> a = quota.Take("t", 0, first);
    ASSERT_TRUE(a);
    EXPECT_EQ(first.connections, 8);
    EXPECT_EQ(first.bytes, 1'000);
    const Result<NetworkQuota::Share> b = quota.Take("t", 0, second);
    ASSERT_TRUE(b);
    EXPECT_EQ(second.connections, 2) << "what is left";
    EXPECT_EQ(second.bytes, 300) << "its own limit";
    const Result<NetworkQuota::Share> c = quota.Take("t", 0, third);
    ASSERT_FALSE(c);
    EXPECT_EQ(c.error().errno_value, EAGAIN) << "the job waits";
    EXPECT_TRUE(quota.Take("other", 0, third));
  }
  quota.Charge("t", 0, 900);
  ASSERT_TRUE(quota.Take("t", kDay - 1, first)) << "the connections came back";
  EXPECT_EQ(first.bytes, 100);
  quota.Charge("t", 0, 100);
  const Result<NetworkQuota::Share> none = quota.Take("t", kDay - 1, first);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kDenied);
  EXPECT_TRUE(quota.Take("t", kDay, first)) << "another day";
  NetworkQuota unbounded(0, 0);
  policy::NetworkLimits own = limits(7, 0);
  ASSERT_TRUE(unbounded.Take("t", 0, own));
  EXPECT_EQ(own.connections, 7);
  EXPECT_EQ(own.bytes, 0);
}

}  // namespace
}  // namespace caisson::service
