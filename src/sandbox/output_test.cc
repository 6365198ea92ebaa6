#include "sandbox/output.h"

#include <gtest/gtest.h>

namespace caisson::sandbox {
namespace {

TEST(OutputKeeper, KeepsEverythingThatFits) {
  OutputKeeper keeper(100);
  for (int i = 0; i < 10; ++i) keeper.Append("0123456789");
  const CapturedStream stream = keeper.Take(100);
  EXPECT_EQ((stream.head + stream.tail).size(), 100U);
  EXPECT_EQ(stream.dropped_bytes, 0U);
  EXPECT_EQ(stream.total_bytes, 100U);
}

TEST(OutputKeeper, KeepsHeadAndTailOfWhatDoesNot) {
  OutputKeeper keeper(8);
  keeper.Append("abcdef");
  for (int i = 0; i < 1000; ++i) keeper.Append("-----");
  keeper.Append("yz");
  const CapturedStream stream = keeper.Take(8);
  EXPECT_EQ(stream.head, "abcdef");
  EXPECT_EQ(stream.tail, "yz");
  EXPECT_EQ(stream.total_bytes, 5008U);
  EXPECT_EQ(stream.dropped_bytes, 5000U);
}

TEST(OutputKeeper, OneHugeAppendIsTheSameAsManySmall) {
  std::string all;
  for (int i = 0; i < 3000; ++i) all += std::to_string(i);
  OutputKeeper whole(64), pieces(64);
  whole.Append(all);
  for (const char letter : all) pieces.Append({&letter, 1});
  const CapturedStream a = whole.Take(64), b = pieces.Take(64);
  EXPECT_EQ(a.head, b.head);
  EXPECT_EQ(a.tail, b.tail);
  EXPECT_EQ(a.dropped_bytes, b.dropped_bytes);
}

TEST(OutputKeeper, TakeCutsTheMiddleToItsLimit) {
  OutputKeeper keeper(1000);
  std::string all;
  for (int i = 0; i < 100; ++i) all += static_cast<char>('a' + i % 26);
  keeper.Append(all);
  const CapturedStream stream = keeper.Take(20);
  EXPECT_EQ(stream.head, all.substr(0, 15));
  EXPECT_EQ(stream.tail, all.substr(95));
  EXPECT_EQ(stream.dropped_bytes, 80U);
}

TEST(OutputKeeper, TakeStartsAnew) {
  OutputKeeper keeper(4);
  keeper.Append("first");
  (void)keeper.Take(100);
  keeper.Append("ab");
  EXPECT_EQ(keeper.Take(100).head, "ab");
}

}  // namespace
}  // namespace caisson::sandbox
