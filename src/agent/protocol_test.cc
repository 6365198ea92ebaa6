#include "agent/protocol.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace caisson::agent {
namespace {

// Where CAISSON_SEEDS names a directory, each message is left there as a seed for the fuzzer.
void KeepSeed(const char* name, Kind kind, const std::string& body) {
  if (const char* directory = ::getenv("CAISSON_SEEDS"))
    std::ofstream(std::string(directory) + "/" + name, std::ios::binary) << Pack(kind, body);
}

Plan SomePlan() {
  Plan plan;
  plan.spec.seccomp = sandbox::FindSeccompProgram("balanced");
  plan.spec.limits = {1 << 20, 1, 10, 1, 4096, 16};
  plan.limit_processes_by_rlimit = true;
  plan.watch_limits = true;
  plan.mounts = {{"/workspace", sandbox::Access::kCopyOnWrite}, {"/data", sandbox::Access::kReadOnly}};
  return plan;
}

TEST(ProtocolTest, APlanArrivesAsItWasSent) {
  const Result<std::string> body = Encode(SomePlan());
  ASSERT_TRUE(body) << body.error().message;
  KeepSeed("plan", Kind::kPlan, *body);
  const Result<Plan> plan = DecodePlan(*body);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->spec.seccomp, SomePlan().spec.seccomp);
  EXPECT_TRUE(plan->limit_processes_by_rlimit);
  EXPECT_TRUE(plan->watch_limits);
  ASSERT_EQ(plan->mounts.size(), 2U);
  EXPECT_EQ(plan->mounts[0].access, sandbox::Access::kCopyOnWrite);
}

TEST(ProtocolTest, AnOutcomeArrivesWithItsCounters) {
  Outcome outcome;
  outcome.outcome.exit_code = 3;
  outcome.counters.emplace();
  outcome.counters->oom_kills = 2;
  outcome.counters->cpu_ms = 40;
  const Result<std::string> body = Encode(outcome);
  ASSERT_TRUE(body);
  KeepSeed("outcome", Kind::kOutcome, *body);
  const Result<Outcome> again = DecodeOutcome(*body);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->outcome.exit_code, 3);
  EXPECT_EQ(again->counters->oom_kills, 2);
  EXPECT_EQ(again->counters->cpu_ms, 40);
  EXPECT_FALSE(again->counters->peak_processes);
}

TEST(ProtocolTest, FramesArriveInPieces) {
  const Result<std::string> output = Encode(Output{OutputStream::kStderr, "text"});
  ASSERT_TRUE(output);
  KeepSeed("output", Kind::kOutput, *output);
  const std::string stream = Pack(Kind::kOutput, *output) + Pack(Kind::kInputEnd, "");
  FrameReader reader;
  std::vector<Kind> kinds;
  for (const char byte : stream) {
    reader.Append({&byte, 1});
    const Result<std::optional<Frame>> frame = reader.Next();
    ASSERT_TRUE(frame);
    if (*frame) kinds.push_back((*frame)->kind);
  }
  EXPECT_EQ(kinds, (std::vector{Kind::kOutput, Kind::kInputEnd}));
  EXPECT_EQ(reader.waiting(), 0U);
}

TEST(ProtocolTest, ReadyMayDescribeASandbox) {
  Ready ready;
  ready.landlock_abi = 2;
  const Result<std::string> without = Encode(ready);
  ASSERT_TRUE(without);
  EXPECT_FALSE(DecodeReady(*without)->isolation);
  ready.isolation.emplace();
  ready.isolation->walls.namespaces = {"user", "pid"};
  ready.isolation->degraded = {"cpu: not limited"};
  const Result<std::string> with = Encode(ready);
  ASSERT_TRUE(with);
  const Result<Ready> decoded = DecodeReady(*with);
  ASSERT_TRUE(decoded && decoded->isolation);
  EXPECT_EQ(decoded->landlock_abi, 2);
  EXPECT_EQ(decoded->isolation->walls.namespaces, ready.isolation->walls.namespaces);
  EXPECT_EQ(decoded->isolation->degraded, ready.isolation->degraded);
  EXPECT_FALSE(DecodeReady(with->substr(0, with->size() - 1)));
}

TEST(ProtocolTest, WhatIsNoFrameIsRefused) {
  for (const std::string& bytes :
       {std::string("HTTP/1.1 400 Bad"), Pack(Kind::kOutput, "").substr(0, 4) + "\xff\xff\xff\xff"}) {
    FrameReader reader;
    reader.Append(bytes);
    EXPECT_FALSE(reader.Next()) << bytes;
  }
  EXPECT_FALSE(DecodePlan(""));
  Execute unnamed;
  unnamed.command.cwd = "/";
  const Result<std::string> encoded = Encode(unnamed);
  ASSERT_TRUE(encoded);
  EXPECT_FALSE(DecodeExecute(*encoded));
  FilePiece outside;
  outside.path = "/etc/passwd";
  EXPECT_FALSE(Encode(outside));
}

}  // namespace
}  // namespace caisson::agent
