#include "session/session_events.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/corpus.h"

namespace caisson::session {
namespace {

using nlohmann::json;
using testing::Slurp;
using Type = SessionEventType;

const std::string kDigest(64, 'd');

std::string FaultOf(const std::string& text) {
  const Result<SessionEvent> event = ParseSessionEvent(text);
  return event ? "accepted" : event.error().message;
}

TEST(SessionEventCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("session_event", 20, 30, 4,
                           [](const std::string& text) { return FaultOf(text) == "accepted"; });
}

// The examples were made by another program, so this also shows that two implementations hash alike.
TEST(SessionEvent, ExamplesOfTheSchemaAreOneChain) {
  std::string prev = audit::kNoHash;
  for (const std::string& example : testing::ExamplesOf("session_event")) {
    const Result<SessionEvent> event = ParseSessionEvent(example);
    ASSERT_TRUE(event) << event.error().message;
    EXPECT_EQ(Canonical(*event), example);
    EXPECT_EQ(event->prev, prev);
    EXPECT_EQ(HashOf(*event), event->hash);
    prev = event->hash;
  }
}

TEST(SessionEvent, EveryTypeHasAName) {
  for (int i = 0; i <= static_cast<int>(Type::kSessionStopped); ++i) {
    const auto type = static_cast<Type>(i);
    EXPECT_EQ(SessionEventTypeOf(SessionEventName(type)), type);
  }
  for (const Type type : {Type::kApplied, Type::kDiscarded, Type::kApprovalRequested, Type::kApprovalGranted,
                          Type::kApprovalDenied, Type::kApprovalExpired, Type::kSessionOpened, Type::kSessionStopped}) {
    EXPECT_TRUE(IsDurable(type)) << SessionEventName(type);
  }
  EXPECT_FALSE(IsDurable(Type::kCommandStarted));
}

class SessionEventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/caisson-events-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/events.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  SessionEventLog Open(const std::string& id = "s-1") const {
    Result<SessionEventLog> log = SessionEventLog::Open(path_, id);
    EXPECT_TRUE(log) << log.error().message;
    return *std::move(log);
  }

  // A whole session of six events; the head after each.
  std::vector<audit::Head> Fill() const {
    SessionEventLog log = Open();
    std::vector<audit::Head> heads;
    const auto write = [&](Type type, json members) {
      const Result<audit::Head> head = log.Write(type, std::move(members));
      EXPECT_TRUE(head) << head.error().message;
      if (head) heads.push_back(*head);
    };
    write(Type::kSessionOpened, {{"project", "/home/a/project"}, {"profile", "session"}});
    write(Type::kCommandStarted, {{"command", 1}, {"argv", {"make", "test"}}});
    write(Type::kCommandFinished,
          {{"command", 1}, {"exit_code", 0}, {"transcript", ToJson(TranscriptDigest{3, 99, kDigest})}});
    write(Type::kDiffComputed, {{"diff_digest", kDigest}});
    write(Type::kSessionStopped, {{"reason", "requested"}, {"transcript", ToJson(TranscriptDigest{4, 120, kDigest})}});
    write(Type::kApplied, {{"diff_digest", kDigest}});
    return heads;
  }

  std::vector<std::string> Lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  void Write(const std::vector<std::string>& lines) const {
    std::ofstream file(path_, std::ios::trunc);
    for (const std::string& line : lines) file << line << '\n';
  }

  std::string Judge(const std::optional<audit::Head>& expected = std::nullopt) const {
    const Result<SessionVerification> found = VerifySessionEvents(path_, expected);
    if (!found) return found.error().message;
    if (!found->chain.finding) return "intact " + std::to_string(found->chain.records);
    return std::string(audit::ChainFaultName(found->chain.finding->fault)) + " " +
           std::to_string(found->chain.finding->line);
  }

  std::string directory_;
  std::string path_;
};

TEST_F(SessionEventsTest, AreAChainThatTellsOfTheTranscript) {
  const auto heads = Fill();
  EXPECT_EQ(Judge(heads.back()), "intact 6");
  const Result<SessionVerification> found = VerifySessionEvents(path_, std::nullopt);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->session_id, "s-1");
  EXPECT_TRUE(found->stopped);
  ASSERT_EQ(found->checkpoints.size(), 2u);
  EXPECT_EQ(found->checkpoints[1].lines, 4);
  EXPECT_TRUE(IsSessionEventFile(path_));
  EXPECT_FALSE(IsSessionEventFile("/etc/passwd"));
  EXPECT_FALSE(IsSessionEventFile(directory_ + "/none"));
  std::vector<int64_t> seen;
  EXPECT_TRUE(ReadSessionEvents(path_, 4, [&](const SessionEvent& event) { seen.push_back(event.seq); }));
  EXPECT_EQ(seen, (std::vector<int64_t>{4, 5}));
}

TEST_F(SessionEventsTest, VerificationNamesTheBrokenLine) {
  const auto heads = Fill();
  const auto lines = Lines();
  for (size_t i = 0; i < lines.size(); ++i) {
    auto edited = lines;
    const size_t at = edited[i].find("\"time\":\"2");
    edited[i][at + 11] = edited[i][at + 11] == '1' ? '2' : '1';
    Write(edited);
    EXPECT_EQ(Judge(), "edited " + std::to_string(i + 1));
    auto removed = lines;
    removed.erase(removed.begin() + static_cast<ptrdiff_t>(i));
    Write(removed);
    EXPECT_EQ(Judge(heads.back()), (i + 1 < lines.size() ? "missing " : "truncated ") + std::to_string(i + 1));
    auto cut = lines;
    cut.resize(i);
    Write(cut);
    EXPECT_EQ(Judge(heads.back()), "truncated " + std::to_string(i + 1));
  }
  // Without a head, the missing end of the session shows.
  Write({lines[0], lines[1], lines[2]});
  EXPECT_FALSE(VerifySessionEvents(path_, std::nullopt)->stopped);
}

TEST_F(SessionEventsTest, AnEventOfAnotherSessionIsFound) {
  Fill();
  SessionEventLog other = Open("s-2");
  ASSERT_TRUE(other.Write(Type::kDiscarded, json::object()));
  EXPECT_EQ(Judge(), "replaced 7");
}

TEST_F(SessionEventsTest, ATornLineIsRepairedAndRecorded) {
  Fill();
  const std::string whole = Slurp(path_);
  std::ofstream(path_, std::ios::app) << R"({"half)";
  EXPECT_EQ(Judge(), "torn 7");
  SessionEventLog log = Open();
  EXPECT_EQ(Judge(*log.head()), "intact 7");
  EXPECT_EQ(Slurp(path_).substr(0, whole.size()), whole);
  const SessionEvent event = *ParseSessionEvent(Lines().back());
  EXPECT_EQ(event.type, Type::kLogRepaired);
  EXPECT_EQ(event.members.at("removed_bytes"), 6);
}

TEST_F(SessionEventsTest, NothingFollowsABrokenLine) {
  Fill();
  std::ofstream(path_, std::ios::app) << "{}\n";
  EXPECT_FALSE(SessionEventLog::Open(path_, "s-1"));
}

TEST_F(SessionEventsTest, TwoProcessesMayWrite) {
  SessionEventLog one = Open(), two = Open();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(one.Write(Type::kCommandStarted, {{"command", i + 1}}));
    ASSERT_TRUE(two.Write(Type::kDiffComputed, {{"diff_digest", kDigest}}));
  }
  EXPECT_TRUE(two.needs_sync());
  EXPECT_TRUE(two.Sync());
  EXPECT_FALSE(two.needs_sync());
  EXPECT_EQ(Judge(*two.head()), "intact 10");
}

TEST_F(SessionEventsTest, TakesHostileTexts) {
  SessionEventLog log = Open();
  json argv = json::array();
  for (int i = 0; i < 100'000; ++i) argv.push_back("\xFF\n\x1b]0;x\x07");
  argv.push_back(std::string(1'000'000, '\xFE'));
  ASSERT_TRUE(log.Write(Type::kCommandStarted, {{"command", 1}, {"argv", argv}, {"\xFF", 1}}));
  EXPECT_EQ(Judge(), "intact 1");
  EXPECT_LE(Lines()[0].size(), kMaxSessionEventBytes);
  // What the schema refuses is not written.
  EXPECT_FALSE(log.Write(Type::kApplied, {{"diff_digest", "none"}}));
  EXPECT_FALSE(log.Write(Type::kCommandFinished, {{"command", 1}}));
  EXPECT_FALSE(log.Write(Type::kDiscarded, {{"seconds", 1.5}}));
  EXPECT_EQ(Judge(), "intact 1");
}

}  // namespace
}  // namespace caisson::session
