// Feeds every seed of corpus/ to every target: input that once broke one target must not break any.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "target.h"

std::map<std::string, FuzzTarget>& FuzzTargets() {
  static std::map<std::string, FuzzTarget> targets;  // others register before main, in no particular order
  return targets;
}

namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = CAISSON_FUZZ_CORPUS;

std::vector<uint8_t> ReadBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

TEST(FuzzCorpus, EveryTargetTakesEverySeed) {
  std::vector<std::vector<uint8_t>> seeds = {{}};
  for (const auto& entry : fs::recursive_directory_iterator(kCorpus)) {
    if (entry.is_regular_file()) seeds.push_back(ReadBytes(entry.path()));
  }
  ASSERT_GT(seeds.size(), 50U);
  for (const auto& [name, target] : FuzzTargets()) {
    SCOPED_TRACE(name);
    for (const std::vector<uint8_t>& seed : seeds) EXPECT_EQ(target(seed.data(), seed.size()), 0);
  }
}

TEST(FuzzCorpus, EveryTargetHasSeedsAndEverySeedATarget) {
  for (const auto& [name, target] : FuzzTargets()) {
    EXPECT_TRUE(fs::is_directory(kCorpus / name) && !fs::is_empty(kCorpus / name)) << name;
  }
  for (const auto& entry : fs::directory_iterator(kCorpus))
    EXPECT_EQ(FuzzTargets().count(entry.path().filename()), 1U) << entry.path();
}

}  // namespace
