// Shared by the conformance tests of the store: a fresh database of each kind for each test, and short functions for
// the actions of clients and workers. Tests that use this fixture run on SQLite and on a real PostgreSQL server.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/store.h"

namespace caisson::store::testing {

// One database, initially empty. It outlives the stores that open it.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Result<std::unique_ptr<Store>> Open() = 0;
  // Whether several stores, of several processes, may be open at once.
  virtual bool Shared() const = 0;
};

// `kind` is "sqlite" or "postgres". Returns nullptr and the reason when this machine has no such server.
std::unique_ptr<Backend> MakeBackend(const std::string& kind, std::string* reason);

inline const auto kKinds = ::testing::Values("sqlite", "postgres");

inline constexpr int64_t kNow = 1'700'000'000'000;
inline constexpr int64_t kLeaseMs = 30'000;

// A job with every field that a client sets.
Job MakeJob(const std::string& id, const std::string& tenant = "acme");
Event MakeEvent(const std::string& type);
End MakeEnd(JobState state = JobState::kSucceeded);
Attempt MakeAttempt(int64_t number);
Approval MakeApproval(const std::string& id, const Job& job, int64_t quorum = 1);
ClaimOptions ClaimAs(const std::string& worker, int64_t max_jobs = 1);
inline Lease LeaseOf(const Job& job) { return {job.id, job.lease_token}; }

// Runs `body(0)` … `body(count - 1)`, each in its own thread, all started at the same time.
void InThreads(int count, const std::function<void(int)>& body);

// Skips the running test, or fails it when CAISSON_MUST_RUN says that this kind must run.
void SkipUnlessRequired(const std::string& kind, const std::string& reason);

// Returns the value of a call that must succeed; when it failed, fails the test and returns an empty value. Returns by
// value, so that a loop can run over it.
template <typename T>
T Must(Result<T> result) {
  if (result) return *std::move(result);
  ADD_FAILURE() << result.error().message;
  return T{};
}

class StoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void Reopen();

  // These functions expect success.
  Job Submit(const Job& job, int64_t key_expires_ms = 0);
  Job SubmitNew(const std::string& id, const std::string& tenant = "acme") { return Submit(MakeJob(id, tenant)); }
  std::vector<Job> Claim(int64_t max_jobs = 1, int64_t now_ms = kNow);
  Job ClaimOne(int64_t now_ms = kNow);
  Job Find(const std::string& job_id);
  std::vector<std::string> EventTypes(const std::string& job_id);
  // Submits a job that waits for this approval, which has this quorum.
  Job SubmitAwaiting(const std::string& job_id, const std::string& approval_id, int64_t quorum = 1);
  Counts Count(int64_t now_ms = kNow);
  // Expects that the store's counts equal the lengths of its lists.
  void ExpectCountsAgree();

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Store> store_;
};

#define EXPECT_OK(expression)                                            \
  do {                                                                   \
    const auto expected_ok = (expression);                               \
    EXPECT_TRUE(expected_ok.has_value()) << expected_ok.error().message; \
  } while (false)
#define ASSERT_OK(expression)                                            \
  do {                                                                   \
    const auto expected_ok = (expression);                               \
    ASSERT_TRUE(expected_ok.has_value()) << expected_ok.error().message; \
  } while (false)
#define EXPECT_ERROR(wanted_kind, expression)                                                         \
  do {                                                                                                \
    const auto expected_error = (expression);                                                         \
    ASSERT_FALSE(expected_error.has_value());                                                         \
    EXPECT_EQ(expected_error.error().kind, ErrorKind::wanted_kind) << expected_error.error().message; \
    EXPECT_NE(expected_error.error().message, "");                                                    \
  } while (false)

}  // namespace caisson::store::testing
