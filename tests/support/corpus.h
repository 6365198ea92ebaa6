// The documents below tests/schemas/corpus/<schema>/<kind>/, which corpus_test.py gives to an independent validator and
// the unit tests give to the program's own parsers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace caisson::testing {

inline std::string Slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string Document(const std::string& schema, const std::string& kind, const std::string& name) {
  return Slurp(std::filesystem::path(CAISSON_TEST_CORPUS) / schema / kind / (name + ".json"));
}

// `accepts` is bool(const std::string& text). Each folder must hold at least as many documents as named.
template <typename Accepts>
void ExpectAgreement(const std::string& schema, size_t valid, size_t invalid, size_t invalid_parser_only,
                     Accepts accepts) {
  const auto judge = [&](const char* kind, size_t at_least, bool expected) {
    std::vector<std::filesystem::path> paths;
    const std::filesystem::path folder = std::filesystem::path(CAISSON_TEST_CORPUS) / schema / kind;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    EXPECT_GE(paths.size(), at_least) << folder;
    for (const auto& path : paths) EXPECT_EQ(accepts(Slurp(path)), expected) << path;
  };
  judge("valid", valid, true);
  judge("invalid", invalid, false);
  judge("invalid_parser_only", invalid_parser_only, false);
}

// The examples that a schema carries.
inline std::vector<std::string> ExamplesOf(const std::string& schema) {
  const std::filesystem::path file =
      std::filesystem::path(CAISSON_TEST_CORPUS) / "../../../schemas" / (schema + ".schema.json");
  std::vector<std::string> examples;
  const nlohmann::json document = nlohmann::json::parse(Slurp(file));
  for (const nlohmann::json& example : document.at("examples")) examples.push_back(example.dump());
  EXPECT_FALSE(examples.empty()) << file;
  return examples;
}

}  // namespace caisson::testing
