// The cases of tests/schemas/corpus/<schema>/<verdict>.yaml (tests/schemas/corpus.py says how they are written).
// corpus_test.py gives them to an independent validator, the unit tests give them to the program's own parsers.
#pragma once

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace caisson::testing {

inline std::string Slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Documents by the name of their case.
inline std::map<std::string, std::string> Cases(const std::string& schema, const std::string& verdict) {
  const std::filesystem::path file = std::filesystem::path(CAISSON_TEST_CORPUS) / schema / (verdict + ".yaml");
  std::map<std::string, std::string> cases;
  for (const auto& entry : YAML::Load(Slurp(file))) {
    std::string document = entry.second.Scalar();
    if (entry.second.Tag() == "tag:yaml.org,2002:binary") {
      const auto binary = entry.second.as<YAML::Binary>();
      document.assign(reinterpret_cast<const char*>(binary.data()), binary.size());
    }
    const std::string name = entry.first.Scalar();
    EXPECT_TRUE(cases.emplace(name, std::move(document)).second) << file << ": " << name;
  }
  return cases;
}

inline std::string Document(const std::string& schema, const std::string& verdict, const std::string& name) {
  return Cases(schema, verdict).at(name);
}

// `accepts` is bool(const std::string& text). Each verdict must have at least as many cases as named.
template <typename Accepts>
void ExpectAgreement(const std::string& schema, size_t valid, size_t invalid, size_t invalid_parser_only,
                     Accepts accepts) {
  const auto judge = [&](const char* verdict, size_t at_least, bool expected) {
    const std::map<std::string, std::string> cases = Cases(schema, verdict);
    EXPECT_GE(cases.size(), at_least) << schema << ' ' << verdict;
    for (const auto& [name, document] : cases) {
      EXPECT_EQ(accepts(document), expected) << schema << ' ' << verdict << ": " << name;
    }
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
