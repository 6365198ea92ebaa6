#include "base/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace caisson {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// -1 stands for "refused"; no quantity can be negative.
int64_t Size(std::string_view text) { return ParseSize(text) ? *ParseSize(text) : -1; }
int64_t Duration(std::string_view text) { return ParseDuration(text) ? *ParseDuration(text) : -1; }
int64_t Cpus(std::string_view text) { return ParseCpus(text) ? *ParseCpus(text) : -1; }
int64_t Count(std::string_view text) { return ParseCount(text) ? *ParseCount(text) : -1; }

TEST(ParseSize, TakesEveryCommonSpelling) {
  EXPECT_EQ(Size("0"), 0);
  EXPECT_EQ(Size("1048576"), 1048576);
  EXPECT_EQ(Size("10b"), 10);
  EXPECT_EQ(Size("512M"), int64_t{512} << 20);
  EXPECT_EQ(Size("512m"), int64_t{512} << 20);
  EXPECT_EQ(Size("512MB"), int64_t{512} << 20);
  EXPECT_EQ(Size("64KiB"), 64 << 10);
  EXPECT_EQ(Size("1G"), int64_t{1} << 30);
  EXPECT_EQ(Size("1.5g"), int64_t{3} << 29);
  EXPECT_EQ(Size(".5k"), 512);
  EXPECT_EQ(Size("2T"), int64_t{2} << 40);
  EXPECT_EQ(Size("1.3M"), 1363148);  // rounded down
  EXPECT_EQ(Size("9223372036854775807"), kMax);
  EXPECT_EQ(Size("0.99999999999999999999999999999999999999k"), 1023);
}

TEST(ParseSize, RefusesTheRest) {
  for (const char* text : {"",         " ",
                           "M",        ".",
                           "1.",       "-1",
                           "+1",       "1 M",
                           " 1",       "1M ",
                           "1MM",      "1X",
                           "0x10",     "1e3",
                           "1.5",      "1.5.2",
                           "1,5G",     "9223372036854775808",
                           "8388608T", "99999999999999999999",
                           "1Ki",      "NaN",
                           "inf"}) {
    EXPECT_EQ(Size(text), -1) << text;
  }
  EXPECT_EQ(Size(std::string_view("1\0", 2)), -1);
}

TEST(ParseDuration, IsInMilliseconds) {
  EXPECT_EQ(Duration("0"), 0);
  EXPECT_EQ(Duration("45"), 45'000);
  EXPECT_EQ(Duration("30s"), 30'000);
  EXPECT_EQ(Duration("500ms"), 500);
  EXPECT_EQ(Duration("2m"), 120'000);
  EXPECT_EQ(Duration("1h"), 3'600'000);
  EXPECT_EQ(Duration("1.5s"), 1'500);
  EXPECT_EQ(Duration("0.001"), 1);
  EXPECT_EQ(Duration("0.0010"), 1);
  for (const char* text :
       {"", "s", "1d", "1S", "5M", "-1s", "1.5ms", "0.0001s", "1 s", "1s2", "9223372036854775807s"}) {
    EXPECT_EQ(Duration(text), -1) << text;
  }
}

TEST(ParseCpus, IsInThousandths) {
  EXPECT_EQ(Cpus("0"), 0);
  EXPECT_EQ(Cpus("2"), 2'000);
  EXPECT_EQ(Cpus("1.5"), 1'500);
  EXPECT_EQ(Cpus(".5"), 500);
  EXPECT_EQ(Cpus("0.29"), 290);  // would be 289 by way of a double
  EXPECT_EQ(Cpus("500m"), 500);
  for (const char* text : {"", "m", "1.5m", "0.0005", "-1", "2cpus", "1M", "1e1", "9999999999999999999"}) {
    EXPECT_EQ(Cpus(text), -1) << text;
  }
}

TEST(ParseCount, IsPlain) {
  EXPECT_EQ(Count("0"), 0);
  EXPECT_EQ(Count("256"), 256);
  EXPECT_EQ(Count("9223372036854775807"), kMax);
  for (const char* text : {"", "-1", "1.0", "1k", "12x", "9223372036854775808"}) EXPECT_EQ(Count(text), -1) << text;
}

TEST(ParseErrors, NameTheTextAndShowExamples) {
  const Error error = ParseSize("12Q\x1b").error();
  EXPECT_EQ(error.kind, ErrorKind::kInvalid);
  EXPECT_NE(error.message.find("\"12Q\\x1b\""), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("512M"), std::string::npos) << error.message;
  EXPECT_NE(ParseDuration("-3s").error().message.find("negative"), std::string::npos);
  EXPECT_NE(ParseCpus("0.0001").error().message.find("finer"), std::string::npos);
  EXPECT_NE(ParseCount("99999999999999999999").error().message.find("too large"), std::string::npos);
  EXPECT_LT(ParseCount(std::string(100'000, '9')).error().message.size(), 300u);
}

TEST(FormatSize, ReadsWell) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(1024), "1 KiB");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatSize((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(FormatSize(int64_t{512} << 20), "512 MiB");
  EXPECT_EQ(FormatSize(int64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(FormatSize(kMax), "8 EiB");
  EXPECT_EQ(FormatSize(-1536), "-1.5 KiB");
  EXPECT_EQ(FormatSize(std::numeric_limits<int64_t>::min()), "-8 EiB");
}

TEST(FormatDuration, ReadsWell) {
  EXPECT_EQ(FormatDuration(0), "0 ms");
  EXPECT_EQ(FormatDuration(320), "320 ms");
  EXPECT_EQ(FormatDuration(999), "999 ms");
  EXPECT_EQ(FormatDuration(1'500), "1.5 s");
  EXPECT_EQ(FormatDuration(45'000), "45 s");
  EXPECT_EQ(FormatDuration(59'999), "59.9 s");
  EXPECT_EQ(FormatDuration(125'000), "2 min 5 s");
  EXPECT_EQ(FormatDuration(180'000), "3 min");
  EXPECT_EQ(FormatDuration(5'400'000), "1 h 30 min");
  EXPECT_EQ(FormatDuration(-1'500), "-1.5 s");
}

}  // namespace
}  // namespace caisson
