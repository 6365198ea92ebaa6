#include "sandbox/output_buffer.h"

#include <gtest/gtest.h>

namespace caisson::sandbox {
namespace {

TEST(OutputBuffer, KeepsEverythingThatFits) {
  OutputBuffer cleanup(100);
  for (int i = 0; i < 10; ++i) cleanup.Append("0123456789");
  const CapturedStream stream = cleanup.Take(100);
  EXPECT_EQ((stream.head + stream.tail).size(), 100U);
  EXPECT_EQ(stream.dropped_bytes, 0U);
  EXPECT_EQ(stream.total_bytes, 100U);
}

TEST(OutputBuffer, KeepsHeadAndTailOfWhatDoesNot) {
  OutputBuffer cleanup(8);
  cleanup.Append("abcdef");
  for (int i = 0; i < 1000; ++i) cleanup.Append("-----");
  cleanup.Append("yz");
  const CapturedStream stream = cleanup.Take(8);
  EXPECT_EQ(stream.head, "abcdef");
  EXPECT_EQ(stream.tail, "yz");
  EXPECT_EQ(stream.total_bytes, 5008U);
  EXPECT_EQ(stream.dropped_bytes, 5000U);
}

TEST(OutputBuffer, OneHugeAppendIsTheSameAsManySmall) {
  std::string all;
  for (int i = 0; i < 3000; ++i) all += std::to_string(i);
  OutputBuffer whole(64), pieces(64);
  whole.Append(all);
  for (const char letter : all) pieces.Append({&letter, 1});
  const CapturedStream a = whole.Take(64), b = pieces.Take(64);
  EXPECT_EQ(a.head, b.head);
  EXPECT_EQ(a.tail, b.tail);
  EXPECT_EQ(a.dropped_bytes, b.dropped_bytes);
}

TEST(OutputBuffer, TakeCutsTheMiddleToItsLimit) {
  OutputBuffer cleanup(1000);
  std::string all;
  for (int i = 0; i < 100; ++i) all += static_cast<char>('a' + i % 26);
  cleanup.Append(all);
  const CapturedStream stream = cleanup.Take(20);
  EXPECT_EQ(stream.head, all.substr(0, 15));
  EXPECT_EQ(stream.tail, all.substr(95));
  EXPECT_EQ(stream.dropped_bytes, 80U);
}

TEST(OutputBuffer, TakeStartsAnew) {
  OutputBuffer cleanup(4);
  cleanup.Append("first");
  (void)cleanup.Take(100);
  cleanup.Append("ab");
  EXPECT_EQ(cleanup.Take(100).head, "ab");
}

}  // namespace
}  // namespace caisson::sandbox
