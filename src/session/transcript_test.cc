#include "session/transcript.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "session/replay_buffer.h"
#include "session/transcript_reader.h"
#include "support/corpus.h"
#include "verify/digest.h"

namespace caisson::session {
namespace {

using testing::Slurp;
constexpr int64_t kMs = 1'000'000;
constexpr char kName[] = "transcript.cast";

class TranscriptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/caisson-transcript-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/" + kName;
    fd_ = UniqueFd(::open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  TranscriptWriter Open(const TranscriptOptions& options = {}) {
    TranscriptHeader header;
    header.timestamp = 1'900'000'000;
    header.title = "a session";
    Result<TranscriptWriter> writer = TranscriptWriter::Open(fd_.get(), kName, header, options);
    EXPECT_TRUE(writer) << writer.error().message;
    return *std::move(writer);
  }

  // "o1:hello" for each event, or the error at the end.
  std::vector<std::string> Events() const {
    std::vector<std::string> events;
    Result<TranscriptReader> reader = TranscriptReader::Open(fd_.get(), kName);
    if (!reader) return {reader.error().message};
    for (;;) {
      const Result<std::optional<TranscriptEvent>> event = reader->Next();
      if (!event) events.push_back(event.error().message);
      if (!event || !*event) return events;
      events.push_back("oirmx?"[static_cast<size_t>((*event)->kind)] + std::to_string((*event)->command) + ":" +
                       (*event)->bytes);
    }
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

  // 0: intact, else the line that is named.
  int64_t Judge(const std::vector<TranscriptDigest>& checkpoints, bool complete = true) const {
    const Result<TranscriptVerification> found = VerifyTranscript(fd_.get(), kName, checkpoints, complete);
    EXPECT_TRUE(found) << found.error().message;
    if (!found->finding) return 0;
    EXPECT_FALSE(found->finding->message.empty());
    return found->finding->line;
  }

  // A finished transcript of some 70 lines; the digests after each of its commands, and at its end.
  std::vector<TranscriptDigest> Fill() {
    TranscriptWriter writer = Open();
    std::vector<TranscriptDigest> digests;
    for (uint32_t command = 1; command <= 3; ++command) {
      EXPECT_TRUE(writer.CommandBegan(command, "make", kMs));
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(writer.Output(command, "line " + std::to_string(i) + "\r\n", kMs));
      EXPECT_TRUE(writer.CommandEnded(command, 0, kMs));
      digests.push_back(writer.digest());
    }
    Result<TranscriptDigest> end = writer.Finish();
    EXPECT_TRUE(end);
    digests.push_back(*end);
    return digests;
  }

  std::string directory_;
  std::string path_;
  UniqueFd fd_;
};

TEST_F(TranscriptTest, IsAnAsciicastThatOthersCanRead) {
  TranscriptWriter writer = Open();
  EXPECT_TRUE(writer.CommandBegan(1, "make test", 5 * kMs));
  EXPECT_TRUE(writer.Output(1, "\x1b[31mred\x1b[0m \xC2\x9B\r\n", 1255 * kMs));
  EXPECT_TRUE(writer.Resize(1, 30, 100, 1255 * kMs + 999));
  EXPECT_TRUE(writer.CommandEnded(1, 2, 1256 * kMs));
  ASSERT_TRUE(writer.Finish());
  std::vector<nlohmann::json> rest;
  const auto lines = Lines();
  const auto header = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(header["version"], 3);
  EXPECT_EQ(header["term"]["cols"], 80);
  EXPECT_EQ(header["timestamp"], 1'900'000'000);
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i][0] != '#') rest.push_back(nlohmann::json::parse(lines[i]));
  }
  ASSERT_EQ(rest.size(), 4u);
  EXPECT_EQ(rest[0], nlohmann::json({0.0, "m", "make test"}));
  EXPECT_EQ(rest[1], nlohmann::json({1.25, "o", "\x1b[31mred\x1b[0m \xC2\x9B\r\n"}));
  EXPECT_EQ(rest[2], nlohmann::json({0.0, "r", "100x30"}));
  EXPECT_EQ(rest[3], nlohmann::json({0.001, "x", "2"}));
  // Printing the file itself does no harm to a terminal.
  for (const char byte : Slurp(path_)) EXPECT_TRUE(byte == '\n' || (byte >= 0x20 && byte < 0x7F));
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(TranscriptTest, KeepsEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  all += "\xED\xA0\x80 \xEF\xBF\xBD \xE2\x94\x80";
  const std::string twice = all + all;
  TranscriptWriter writer = Open();
  for (size_t i = 0; i < twice.size(); i += 7) EXPECT_TRUE(writer.Output(1, twice.substr(i, 7), kMs));
  EXPECT_TRUE(writer.Output(1, "\xE2\x94", kMs));  // never completed
  ASSERT_TRUE(writer.Finish());
  std::string read;
  for (const std::string& event : Events()) read += event.substr(event.find(':') + 1);
  EXPECT_EQ(read, twice + "\xE2\x94");
}

TEST_F(TranscriptTest, CharactersSplitOverWritesStayWhole) {
  TranscriptWriter writer = Open();
  EXPECT_TRUE(writer.Output(1, "a\xE2", kMs));
  EXPECT_TRUE(writer.Output(2, "b", kMs));  // another command's output does not come in between
  EXPECT_TRUE(writer.Output(1, "\x94\x80z", kMs));
  ASSERT_TRUE(writer.Finish());
  EXPECT_EQ(Events(), (std::vector<std::string>{"o1:a", "o2:b", "o1:\xE2\x94\x80z"}));
  EXPECT_EQ(Slurp(path_).find("base64"), std::string::npos);
}

TEST_F(TranscriptTest, LongOutputBecomesSeveralEvents) {
  std::string big;
  while (big.size() < 200'000) big += "\x1b\xE2\x94\x80\xFF";
  TranscriptWriter writer = Open();
  EXPECT_TRUE(writer.Output(1, big, kMs));
  ASSERT_TRUE(writer.Finish());
  std::string read;
  for (const std::string& event : Events()) read += event.substr(3);
  EXPECT_EQ(read, big);
}

TEST_F(TranscriptTest, InputIsRecordedOnlyOnRequest) {
  {
    TranscriptWriter writer = Open();
    EXPECT_TRUE(writer.Input(1, "secret", kMs));
    ASSERT_TRUE(writer.Finish());
    EXPECT_EQ(Slurp(path_).find("secret"), std::string::npos);
  }
  std::filesystem::remove(path_);
  TranscriptOptions options;
  options.record_input = true;
  TranscriptWriter writer = Open(options);
  EXPECT_TRUE(writer.Input(1, "typed", kMs));
  EXPECT_EQ(Events(), std::vector<std::string>{"i1:typed"});
}

TEST_F(TranscriptTest, EndsAtItsCapAndSaysSo) {
  TranscriptOptions options;
  options.max_bytes = 20'000;
  TranscriptWriter writer = Open(options);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer.Output(1, std::string(1000, 'x'), kMs));
  const Result<TranscriptDigest> digest = writer.Finish();
  ASSERT_TRUE(digest);
  EXPECT_LE(digest->bytes, 20'000);
  const auto events = Events();
  EXPECT_EQ(events.back(), "m0:caisson: the transcript ends here: it reached its limit of 20000 bytes");
  EXPECT_EQ(static_cast<int64_t>(events.size() - 1) * 1000 + writer.dropped_bytes(), 100'000);
  EXPECT_EQ(Judge({*digest}), 0);
}

TEST_F(TranscriptTest, GoesOnAfterACrash) {
  {
    TranscriptWriter writer = Open();
    EXPECT_TRUE(writer.Output(7, "first\xFF", kMs));
  }
  const std::string whole = Slurp(path_);
  std::ofstream(path_, std::ios::app) << "[0.1,\"o\",\"half";
  {
    Result<TranscriptReader> reader = TranscriptReader::Open(fd_.get(), kName);
    ASSERT_TRUE(reader);
    ASSERT_TRUE((*reader->Next()).has_value());
    ASSERT_FALSE((*reader->Next()).has_value());
    EXPECT_TRUE(reader->ends_torn());
  }
  TranscriptWriter writer = Open();
  EXPECT_EQ(Slurp(path_), whole);
  EXPECT_TRUE(writer.Output(7, "second", 9 * kMs));
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(writer.Output(7, "x", 9 * kMs));
  const Result<TranscriptDigest> digest = writer.Finish();
  ASSERT_TRUE(digest);
  EXPECT_EQ(digest->sha256, verify::Sha256Hex(Slurp(path_)));
  EXPECT_EQ(digest->bytes, static_cast<int64_t>(Slurp(path_).size()));
  EXPECT_EQ(digest->lines, static_cast<int64_t>(Lines().size()));
  EXPECT_EQ(Judge({*digest}), 0);
  EXPECT_EQ(Events()[1], "o7:second");
  EXPECT_FALSE(writer.Output(7, "x", kMs)) << "it is finished";
}

TEST_F(TranscriptTest, AFullDiskEndsTheRecordingWithAWholeLine) {
  Fill();
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlim_t size = Slurp(path_).size() + 100;
    const struct rlimit limit { size, size };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    TranscriptWriter writer = Open();
    const bool failed =
        !writer.Output(1, std::string(200, 'x'), kMs) && !writer.Output(1, "x", kMs) && !writer.Finish();
    ::_exit(failed && Slurp(path_).back() == '\n' ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(TranscriptTest, VerificationNamesTheLine) {
  const auto digests = Fill();
  EXPECT_EQ(Judge(digests), 0);
  EXPECT_EQ(Judge({digests[0], digests[1]}, false), 0);
  EXPECT_EQ(digests.back().sha256, verify::Sha256Hex(Slurp(path_)));
  const auto lines = Lines();
  ASSERT_GT(lines.size(), 60u);
  for (size_t i = 1; i < lines.size(); ++i) {
    auto edited = lines;
    const size_t at = edited[i].find_last_of("0123456789abcdef");
    edited[i][at] = edited[i][at] == '1' ? '2' : '1';
    Write(edited);
    const bool is_check = edited[i].find("sha256") != std::string::npos;
    EXPECT_EQ(Judge(digests), static_cast<int64_t>(i + 1)) << (is_check ? "a check line" : edited[i]);
  }
  for (const size_t i : {size_t{2}, size_t{20}, lines.size() - 3}) {
    auto removed = lines;
    removed.erase(removed.begin() + static_cast<ptrdiff_t>(i));
    Write(removed);
    EXPECT_EQ(Judge(digests), static_cast<int64_t>(i + 1));
    auto added = lines;
    added.insert(added.begin() + static_cast<ptrdiff_t>(i), R"([0.0,"o","forged"])");
    Write(added);
    EXPECT_EQ(Judge(digests), static_cast<int64_t>(i + 1));
    auto cut = lines;
    cut.resize(i);
    Write(cut);
    EXPECT_EQ(Judge(digests), static_cast<int64_t>(i + 1));
  }
  auto longer = lines;
  longer.push_back(R"([0.0,"o","forged"])");
  Write(longer);
  EXPECT_EQ(Judge(digests), static_cast<int64_t>(lines.size() + 1));
  Write(lines);
  std::ofstream(path_, std::ios::app) << "[0";
  EXPECT_EQ(Judge(digests), static_cast<int64_t>(lines.size() + 1));
}

TEST_F(TranscriptTest, ATranscriptWrittenAnewIsFoundByTheEvents) {
  const auto digests = Fill();
  std::filesystem::remove(path_);
  TranscriptWriter writer = Open();
  while (writer.digest().lines < digests.back().lines + 5) EXPECT_TRUE(writer.Output(1, "forged", kMs));
  ASSERT_TRUE(writer.Finish());
  EXPECT_EQ(Judge({}, false), 0);
  EXPECT_EQ(Judge(digests), 1);  // everything up to the first checkpoint
}

TEST_F(TranscriptTest, ReaderNamesTheLineOfAFault) {
  const std::string header = R"({"version":3,"term":{"cols":80,"rows":24}})";
  const auto fault = [&](const std::string& line) {
    Write({header, "# a comment", R"([0.5, "o", "fine"])", line});
    return Events().back();
  };
  EXPECT_EQ(fault(R"([1, "?", "x"])").substr(0, 8), "line 4: ");
  EXPECT_EQ(fault(R"([1, "z", "unknown codes are passed over"])"), "?0:unknown codes are passed over");
  for (const std::string& bad : std::vector<std::string>{"",
                                                         "{}",
                                                         "[]",
                                                         R"([1,"o"])",
                                                         R"([-1,"o","x"])",
                                                         R"([1e300,"o","x"])",
                                                         R"([1,2,"x"])",
                                                         R"([1,"o",3])",
                                                         R"([1,"r","80"])",
                                                         R"([1,"r","0x24"])",
                                                         R"([1,"r","80x99999999999"])",
                                                         R"([1,"x","256"])",
                                                         R"([1,"x","-1"])",
                                                         R"([1,"o","x"] )"
                                                         "\x01",
                                                         R"([1,"o","x"])"
                                                         "\xFF",
                                                         R"(#caisson {"unknown":1})",
                                                         R"(#caisson [])",
                                                         R"(#caisson {"base64":"*"})",
                                                         R"(#caisson {"command":-1})",
                                                         R"(#caisson {"lines":"12345678"})"}) {
    EXPECT_EQ(fault(bad).substr(0, 8), "line 4: ") << bad;
  }
  EXPECT_EQ(fault(std::string(2'000'000, 'x')), "line 4: takes more than 768 KiB");
  for (const std::string& bad :
       std::vector<std::string>{"", "{}", R"({"version":2,"term":{"cols":80,"rows":24}})", R"({"version":3})",
                                R"({"version":3,"term":{"cols":0,"rows":24}})", "# comment"}) {
    Write({bad});
    EXPECT_EQ(Events().back().substr(0, 8), "line 1: ") << bad;
  }
  // The note may not say something else than what other players show.
  Write({header, R"(#caisson {"base64":"aGVsbG8="})", R"([0.5,"o","hell"])"});
  EXPECT_EQ(Events().back(), "line 3: is not what the note above it says");
}

TEST_F(TranscriptTest, OnlyRegularFiles) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(TranscriptReader::Open(fd_.get(), kName));
  EXPECT_FALSE(TranscriptWriter::Open(fd_.get(), kName, {}, {}));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/passwd", path_);
  EXPECT_FALSE(TranscriptReader::Open(fd_.get(), kName));
  EXPECT_FALSE(TranscriptWriter::Open(fd_.get(), kName, {}, {}));
}

TEST(ReplayBuffer, KeepsTheEndAndCountsTheRest) {
  ReplayBuffer buffer(10);
  buffer.Append("abc");
  EXPECT_EQ(buffer.ReadFrom(0).bytes, "abc");
  EXPECT_EQ(buffer.ReadFrom(2).bytes, "c");
  EXPECT_EQ(buffer.ReadFrom(3).bytes, "");
  buffer.Append("defghij");
  EXPECT_EQ(buffer.dropped(), 0);
  buffer.Append("klm");
  EXPECT_EQ(buffer.dropped(), 3);
  EXPECT_EQ(buffer.end(), 13);
  EXPECT_EQ(buffer.ReadFrom(0).bytes, "defghijklm");
  EXPECT_EQ(buffer.ReadFrom(0).missing, 3);
  EXPECT_EQ(buffer.ReadFrom(5).bytes, "fghijklm");
  EXPECT_EQ(buffer.ReadFrom(5).missing, 0);
  buffer.Append("0123456789ABCDE");
  EXPECT_EQ(buffer.ReadFrom(13).bytes, "56789ABCDE");
  EXPECT_EQ(buffer.ReadFrom(13).missing, 5);
  EXPECT_EQ(buffer.ReadFrom(1000).bytes, "");
  // The same as a plain string, for pieces of every size.
  ReplayBuffer ring(64);
  std::string all;
  for (size_t size = 0; size < 200; ++size) {
    const std::string piece(size % 90, static_cast<char>('a' + size % 26));
    ring.Append(piece);
    all += piece;
    EXPECT_EQ(ring.ReadFrom(0).bytes, all.substr(all.size() - std::min<size_t>(all.size(), 64)));
  }
}

}  // namespace
}  // namespace caisson::session
