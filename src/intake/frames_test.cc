#include "intake/frames.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace caisson::intake {
namespace {

struct Reading {
  std::vector<Frame> frames;
  std::string fault;  // empty: none
};

// Feeds `stream` in pieces of `step` bytes.
Reading Read(const std::string& stream, size_t step = 1, size_t max_name = 16, uint64_t max_body = 64) {
  Reading reading;
  FrameReader reader(max_name, max_body, [&](Frame frame) {
    reading.frames.push_back(std::move(frame));
    return Status();
  });
  Status status;
  for (size_t at = 0; at < stream.size() && status; at += step) status = reader.Feed(stream.substr(at, step));
  if (status) status = reader.Finish();
  if (!status) reading.fault = status.error().message;
  return reading;
}

std::string Head(char kind, uint32_t name, uint64_t body) {
  std::string head(1, kind);
  for (int i = 0; i < 4; ++i) head.push_back(static_cast<char>(name >> (8 * i)));
  for (int i = 0; i < 8; ++i) head.push_back(static_cast<char>(body >> (8 * i)));
  return head;
}

const std::string kEnd = Encode({FrameKind::kEnd, "", ""});

TEST(Frames, AreLaidOutAsDocumented) {
  EXPECT_EQ(Encode({FrameKind::kFile, "a/b", "xy"}), Head('f', 3, 2) + "a/bxy");
  EXPECT_EQ(kEnd, Head('.', 0, 0));
}

TEST(FrameReader, ReadsWhatWasEncodedHoweverItIsCut) {
  const std::string stream = Encode({FrameKind::kDirectory, "d", ""}) +
                             Encode({FrameKind::kExecutable, "d/x", std::string("\0\xFF\n", 3)}) +
                             Encode({FrameKind::kSymlink, "l", "d"}) + Encode({FrameKind::kFile, "", ""}) + kEnd;
  for (const size_t step : {1, 2, 3, 5, 13, 14, 1000}) {
    const Reading reading = Read(stream, step);
    EXPECT_EQ(reading.fault, "") << step;
    std::string again;
    for (const Frame& frame : reading.frames) again += Encode(frame);
    EXPECT_EQ(again, stream) << step;
  }
}

TEST(FrameReader, NeedsAnEndAndNothingAfterIt) {
  const std::string file = Encode({FrameKind::kFile, "a", "bc"});
  EXPECT_EQ(Read("").fault, "the unpacking helper's answer breaks off");
  EXPECT_EQ(Read(file).fault, "the unpacking helper's answer breaks off");
  for (size_t size = 0; size < (file + kEnd).size(); ++size)
    EXPECT_EQ(Read((file + kEnd).substr(0, size), 7).fault, "the unpacking helper's answer breaks off") << size;
  EXPECT_EQ(Read(kEnd + "f").fault, "the unpacking helper's answer goes on after its end");
  EXPECT_EQ(Read(Encode({FrameKind::kRefused, "", "why"}) + kEnd).fault,
            "the unpacking helper's answer goes on after its end");
}

TEST(FrameReader, JudgesLengthsBeforeItKeepsAnything) {
  EXPECT_EQ(Read(Head('f', 17, 0)).fault, "the unpacking helper's answer has a name that is too long");
  EXPECT_EQ(Read(Head('f', 0xFFFFFFFF, 0)).fault, "the unpacking helper's answer has a name that is too long");
  EXPECT_EQ(Read(Head('f', 1, 65)).fault, "the unpacking helper's answer has a file that is too large");
  EXPECT_EQ(Read(Head('f', 1, ~uint64_t{0})).fault, "the unpacking helper's answer has a file that is too large");
  EXPECT_EQ(Read(Head('g', 1, 1)).fault, "the unpacking helper's answer has a frame of an unknown kind");
  EXPECT_EQ(Read(Head('\0', 1, 1)).fault, "the unpacking helper's answer has a frame of an unknown kind");
}

TEST(FrameReader, StopsWhereItsReceiverDoes) {
  int count = 0;
  FrameReader reader(16, 64, [&](const Frame&) {
    ++count;
    return Status(Error::Invalid("enough"));
  });
  const std::string file = Encode({FrameKind::kFile, "a", ""});
  const Status status = reader.Feed(file + file);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "enough");
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace caisson::intake
