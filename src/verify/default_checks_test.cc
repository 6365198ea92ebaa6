#include "verify/default_checks.h"

#include <gtest/gtest.h>

namespace caisson::verify {
namespace {

std::vector<std::string> Tiers(const Result<DefaultChecks>& chosen) {
  std::vector<std::string> tiers;
  if (chosen) {
    for (const Check& check : chosen->checks) tiers.push_back(check.tier);
  }
  return tiers;
}

using Names = std::vector<std::string>;

TEST(ChooseChecks, AGivenFileIsTheEntry) {
  const auto chosen = ChooseChecks({"answer.py"}, "answer.py");
  EXPECT_EQ(Tiers(chosen), (Names{"syntax", "run"}));
  EXPECT_EQ(chosen->checks[1].argv.back(), "/workspace/answer.py");
}

TEST(ChooseChecks, EntryFilesInOrder) {
  EXPECT_EQ(ChooseChecks({"__main__.py", "main.py", "x.py"}, "")->checks[1].argv.back(), "/workspace/main.py");
  EXPECT_EQ(ChooseChecks({"__main__.py", "x.py"}, "")->checks[1].argv.back(), "/workspace/__main__.py");
  EXPECT_EQ(ChooseChecks({"only.py", "notes.txt", "pkg/inner.py"}, "")->checks[1].argv.back(), "/workspace/only.py");
}

TEST(ChooseChecks, TestsAreRunWhenThereAreAny) {
  EXPECT_EQ(Tiers(ChooseChecks({"main.py", "tests/test_main.py"}, "")), (Names{"syntax", "run", "test"}));
  EXPECT_EQ(Tiers(ChooseChecks({"main.py", "main_test.py"}, "")), (Names{"syntax", "run", "test"}));
}

TEST(ChooseChecks, TestsWithoutEntryLeaveRunOut) {
  const auto chosen = ChooseChecks({"lib.py", "other.py", "test_lib.py"}, "");
  EXPECT_EQ(Tiers(chosen), (Names{"syntax", "test"}));
  ASSERT_EQ(chosen->skipped.size(), 1U);
  EXPECT_EQ(chosen->skipped[0].name, "run");
}

TEST(ChooseChecks, SaysWhatIsMissing) {
  EXPECT_NE(ChooseChecks({"a.py", "b.py"}, "").error().message.find("main.py"), std::string::npos);
  EXPECT_NE(ChooseChecks({"a.c"}, "").error().message.find("explicit checks"), std::string::npos);
  EXPECT_FALSE(ChooseChecks({}, ""));
}

}  // namespace
}  // namespace caisson::verify
