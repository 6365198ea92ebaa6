#include "policy/yaml_document.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace caisson::policy {
namespace {

YamlNode MustRead(std::string_view text) {
  const Result<YamlNode> root = ReadYaml(text, "f");
  EXPECT_TRUE(root) << root.error().message;
  return root ? *root : YamlNode();
}

TEST(YamlDocumentTest, KeepsOrderTextsAndPlaces) {
  const YamlNode root = MustRead("b: [x, 'y']\na:\n  k: \"v\"\n");
  ASSERT_EQ(root.fields.size(), 2u);
  EXPECT_EQ(root.fields[0].key.text, "b");
  const YamlNode& list = *root.Find("b");
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_FALSE(list.items[0].quoted);
  EXPECT_TRUE(list.items[1].quoted);
  EXPECT_EQ(list.items[1].column, 8);
  const YamlNode& value = *root.Find("a")->Find("k");
  EXPECT_EQ(std::pair(value.line, value.column), std::pair(3, 6));
  EXPECT_EQ(root.Find("c"), nullptr);
}

TEST(YamlDocumentTest, NothingIsNotAWord) {
  for (const char* text : {"a:", "a: ~", "a: null", "a: Null", "a: NULL", "a: \n"})
    EXPECT_TRUE(MustRead(text).Find("a")->IsNull()) << text;
  for (const char* text : {"a: \"\"", "a: 'null'", "a: nULL", "a: |\n  null", "a: []", "a: 0"})
    EXPECT_FALSE(MustRead(text).Find("a")->IsNull()) << text;
}

TEST(YamlDocumentTest, WhatIsMissingIsAtItsKey) {
  const YamlNode root = MustRead("a:\n\nb:\n  - 1\nc: ~\n");
  EXPECT_EQ(std::pair(root.Find("a")->line, root.Find("a")->column), std::pair(1, 1));
  EXPECT_EQ(std::pair(root.Find("c")->line, root.Find("c")->column), std::pair(5, 4));
}

TEST(YamlDocumentTest, CountsColumnsInBytes) {
  const Result<YamlNode> root = ReadYaml("ä: {ö: 1, ö: 2}", "f");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().message, "f:1:13: \"ö\" is given twice");
}

struct Refused {
  std::string text;
  const char* place;
  const char* words;
};

class RefusedYamlTest : public testing::TestWithParam<Refused> {};

TEST_P(RefusedYamlTest, SaysWhereAndWhy) {
  const Result<YamlNode> root = ReadYaml(GetParam().text, "f");
  ASSERT_FALSE(root) << GetParam().text;
  const std::string& message = root.error().message;
  EXPECT_EQ(root.error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(message.rfind(std::string("f:") + GetParam().place + ": ", 0), 0u) << message;
  EXPECT_NE(message.find(GetParam().words), std::string::npos) << message;
  EXPECT_EQ(EscapeForTerminal(message), message);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedYamlTest,
    testing::Values(
        Refused{"", "1:1", "empty"}, Refused{"# only a comment\n", "1:1", "empty"},
        Refused{"a: 1\na: 2", "2:1", "given twice"}, Refused{"a: 1\n'a': 2", "2:1", "given twice"},
        Refused{"a: &x 1", "1:4", "anchors"}, Refused{"&x a: 1", "1:1", "anchors"},
        Refused{"a: [&x ~]", "1:5", "anchors"}, Refused{"&x\na: 1", "1:1", "anchors"},
        Refused{"a: !!int 1", "1:4", "tags"}, Refused{"a: !x {}", "1:4", "tags"}, Refused{"!x a: 1", "1:1", "tags"},
        Refused{"a:\n\tb: 1", "2:1", "a tab"}, Refused{"a:\n  \tb: 1", "2:3", "a tab"},
        Refused{"[a]: 1", "1:1", "a key must be a word"}, Refused{"{a: 1}: 1", "1:1", "a key must be a word"},
        Refused{std::string(13, '[') + std::string(13, ']'), "1:13", "nested too deeply"},
        Refused{"a: 1\n---\nb: 1", "2:1", "second document"}, Refused{"a: 1\n--- ", "2:1", "second document"},
        Refused{"a: \xff", "1:4", "not UTF-8"}, Refused{std::string("a: \0", 4), "1:4", "\\x00"},
        Refused{"a: \"\\0\"", "1:4", "NUL"}, Refused{"\"a\\0\": 1", "1:1", "NUL"}, Refused{"a: b\rc", "1:5", "\\x0d"},
        Refused{"ä: \u202eb", "1:5", "\\u{202e}"}, Refused{"a: 1 # \u0085b: 2", "1:8", "\\u{0085}"},
        Refused{"a: \x7f", "1:4", "\\x7f"}, Refused{"a: \"\\ud800\"", "1:11", "invalid"},
        Refused{"a: 'b", "2:1", "a quote is still open"}, Refused{"a: \"b\nc: d\n", "3:1", "a quote is still open"},
        Refused{"a: \"b\n...\n", "2:1", "a quote is still open"}, Refused{"---\n", "1:1", "empty"},
        Refused{"%YAML 1.2\n---\na: 1", "1:1", "directives"}, Refused{"%a: 1\nb: 2", "1:1", "directives"},
        Refused{"a: *b", "1:4", ""}));

TEST(YamlDocumentTest, RefusesWhatIsTooMuch) {
  EXPECT_FALSE(ReadYaml(std::string(kMaxYamlBytes + 1, '#'), "f"));
  std::string keys;
  for (int i = 0; i < 1025; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  const Result<YamlNode> root = ReadYaml(keys, "f");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().message, "f:1025:1: too many keys");
}

TEST(YamlDocumentTest, TakesOtherLineEndsAndMarkers) {
  EXPECT_EQ(MustRead("a: 1\r\nb: 2\r\n").fields.size(), 2u);
  EXPECT_EQ(MustRead("---\na: 1\n...\n").fields.size(), 1u);
  EXPECT_EQ(MustRead("\xef\xbb\xbf"
                     "a: 1")
                .fields.size(),
            1u);
  EXPECT_EQ(MustRead("a: |\n  x\n").Find("a")->text, "x\n");
  EXPECT_EQ(MustRead("a: |+\n  x\n\n\nb: >-\n  y\n").Find("a")->text, "x\n\n\n");
  EXPECT_EQ(MustRead("a: x\ty").Find("a")->text, "x\ty");
  EXPECT_EQ(MustRead("a: \"\\u202e\"").Find("a")->text, "\u202e");
}

}  // namespace
}  // namespace caisson::policy
