#include "runtime/engine/stream_decoder.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::runtime::engine {

namespace {

using Stream = StreamDecoder::Stream;

std::string Piece(char stream, std::string_view bytes) {
  std::string piece = {stream, 0, 0, 0};
  for (int shift = 24; shift >= 0; shift -= 8) piece += static_cast<char>(bytes.size() >> shift);
  return piece.append(bytes);
}

struct Taken {
  std::string output, error;
  bool ok = true;
};

Taken TakeInSteps(std::string_view bytes, size_t step) {
  StreamDecoder decoder;
  Taken taken;
  for (size_t at = 0; at < bytes.size() && taken.ok; at += step) {
    taken.ok = decoder
                   .Take(bytes.substr(at, step),
                         [&](Stream stream, std::string_view piece) {
                           (stream == Stream::kOutput ? taken.output : taken.error).append(piece);
                         })
                   .has_value();
  }
  return taken;
}

TEST(StreamDecoder, DoesNotDependOnHowTheBytesArrive) {
  const std::string bytes =
      Piece(1, "first") + Piece(2, "complaint") + Piece(1, "") + Piece(1, std::string(70'000, 'x'));
  for (const size_t step : {size_t{1}, size_t{3}, size_t{8}, size_t{13}, bytes.size()}) {
    const Taken taken = TakeInSteps(bytes, step);
    EXPECT_TRUE(taken.ok);
    EXPECT_EQ(taken.output, "first" + std::string(70'000, 'x'));
    EXPECT_EQ(taken.error, "complaint");
  }
}

TEST(StreamDecoder, KnowsWhetherAPieceIsCutOff) {
  StreamDecoder decoder;
  const std::string piece = Piece(1, "whole");
  const auto drop = [](Stream, std::string_view) {};
  ASSERT_TRUE(decoder.Take(piece.substr(0, 10), drop));
  EXPECT_FALSE(decoder.is_between_pieces());
  ASSERT_TRUE(decoder.Take(piece.substr(10), drop));
  EXPECT_TRUE(decoder.is_between_pieces());
}

TEST(StreamDecoder, RefusesOtherStreamsForEver) {
  for (const std::string& bad : {std::string("plain text of a terminal"), Piece(3, "x"),
                                 std::string("\1\0\1\0\0\0\0\1x", 9), std::string("\1\0\0\0\xff\xff\xff\xff", 8)}) {
    StreamDecoder decoder;
    const auto drop = [](Stream, std::string_view) {};
    EXPECT_FALSE(decoder.Take(bad, drop));
    EXPECT_FALSE(decoder.Take(Piece(1, "good"), drop));
  }
}

}  // namespace

}  // namespace caisson::runtime::engine
