// Kills a process with kill -9 in the middle of its work: everything that the store had confirmed to it must still
// hold.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "base/unique_fd.h"
#include "conformance/store_fixture.h"

namespace caisson::store::testing {
namespace {

// Writes each line after the store confirmed the change, in one write(2), so that a reader never sees half a line.
void Tell(int fd, const std::string& line) {
  if (::write(fd, (line + "\n").data(), line.size() + 1) < 0) ::_exit(3);
}

// Works until it is killed.
[[noreturn]] void Work(Backend& backend, int round, int fd) {
  Result<std::unique_ptr<Store>> opened = backend.Open();
  if (!opened) {
    Tell(fd, "error " + opened.error().message);
    ::_exit(1);
  }
  Store& store = **opened;
  InThreads(4, [&](int thread) {
    for (int i = 0;; ++i) {
      const std::string id = std::to_string(round) + "-" + std::to_string(thread) + "-" + std::to_string(100'000 + i);
      Job job = MakeJob(id, "t" + std::to_string(i % 2));
      job.idempotency_key = id;
      if (store.Submit(job, {}, 0, {MakeEvent("submitted")})) Tell(fd, "submitted " + id);
      const Result<std::vector<Job>> claimed = store.Claim(ClaimAs("w", 1));
      for (const Job& mine : claimed ? *claimed : std::vector<Job>()) {
        Tell(fd, "claimed " + mine.id + " " + mine.lease_token);
        End end = MakeEnd();
        end.result = mine.lease_token;
        if (i % 7 == 3) continue;  // a worker that hangs
        if (!store.Advance(LeaseOf(mine), JobState::kRunning, kNow, {MakeEvent("running")})) continue;
        if (store.Finish(LeaseOf(mine), end)) Tell(fd, "finished " + mine.id + " " + mine.lease_token);
      }
    }
  });
  ::_exit(2);
}

class Crash : public StoreTest {
 protected:
  // Kills a worker after it wrote `lines` lines; returns all its lines.
  std::string KillAfter(int round, int lines) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const UniqueFd out(ends[0]);
    UniqueFd in(ends[1]);
    store_.reset();  // no other thread is alive at the fork, and SQLite has one process at a time
    const pid_t child = ::fork();
    if (child == 0) Work(*backend_, round, in.get());
    in.Reset();
    std::string said;
    char buffer[4096];
    bool killed = false;
    for (ssize_t got = 0; (got = ::read(out.get(), buffer, sizeof buffer)) > 0;) {
      said.append(buffer, static_cast<size_t>(got));
      if (!killed && std::count(said.begin(), said.end(), '\n') >= lines) {
        ::kill(child, SIGKILL);
        killed = true;
      }
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(killed && WIFSIGNALED(status)) << said;
    return said;
  }

  void ExpectAllThatWasSaid(const std::string& said) {
    std::istringstream lines(said);
    std::string verb, id, token;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream(line) >> verb >> id >> token;
      const Job job = Find(id);
      if (verb == "submitted") {
        Job again = MakeJob(id + "-again", job.tenant);
        again.idempotency_key = id;
        again.request_digest = job.request_digest;
        EXPECT_TRUE(Must(store_->Submit(again, {}, 0, {})).existed) << line;
      } else if (verb == "claimed") {
        EXPECT_TRUE(job.lease_token == token || job.result == token) << line;
      } else {
        EXPECT_EQ(verb, "finished") << line;
        EXPECT_EQ(job.state, JobState::kSucceeded) << line;
        EXPECT_EQ(job.result, token) << line;
      }
    }
  }
};

TEST_P(Crash, WhatWasSaidIsTrueAfterKill9) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 8; ++round) {
    const std::string said = KillAfter(round, static_cast<int>(random() % 60) + 1);
    Reopen();
    ExpectAllThatWasSaid(said);
    ExpectCountsAgree();
    JobFilter all;
    all.limit = 1'000'000;
    for (const Job& job : Must(store_->List(all))) {
      const std::vector<std::string> events = EventTypes(job.id);
      EXPECT_EQ(std::count(events.begin(), events.end(), "ended"), IsEnd(job.state) ? 1 : 0) << job.id;
      EXPECT_EQ(Find(job.id).result.empty(), !IsEnd(job.state)) << job.id;
    }
    // The reconciler takes back the jobs that the dead worker held.
    for (const Job& job : Must(store_->LapsedLeases(kNow + kLeaseMs + 1, 1000))) {
      ASSERT_OK(store_->Retry(LeaseOf(job), MakeAttempt(job.attempt), 0, {MakeEvent("lost")}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Store, Crash, kKinds);

}  // namespace
}  // namespace caisson::store::testing
