#include "verify/json_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace caisson::verify {
namespace {

using nlohmann::json;

std::string FaultOf(std::string_view text, const JsonBounds& bounds = {}) {
  const Result<json> tree = ReadJson(text, bounds);
  if (tree) return "accepted";
  EXPECT_EQ(tree.error().kind, ErrorKind::kInvalid);
  return tree.error().message;
}

void ExpectFault(std::string_view text, std::string_view beginning) {
  const std::string fault = FaultOf(text);
  EXPECT_EQ(fault.substr(0, beginning.size()), beginning) << "in full: " << fault;
}

TEST(ReadJson, BuildsTheSameTreeAsTheLibrary) {
  for (const char* text : {"null", "true", "-1", "0.5", "\"x\"", "[]", "{}", "[1, [2, {\"a\": []}], {}]",
                           "{\"a\": {\"b\": [null, false, \"\\u00e9\\ud83d\\ude00\"]}, \"c\": 1e3}",
                           "9223372036854775807", "-9223372036854775808", " [ 1 ] \n"}) {
    const Result<json> tree = ReadJson(text, {});
    ASSERT_TRUE(tree) << text << ": " << tree.error().message;
    EXPECT_EQ(*tree, json::parse(text)) << text;
  }
}

TEST(ReadJson, NamesThePathOfADuplicateKey) {
  ExpectFault(R"({"a": 1, "a": 2})", "a: duplicate key");
  ExpectFault(R"({"limits": {"cpu": 1, "cpu": 2}})", "limits.cpu: duplicate key");
  ExpectFault(R"({"a": [0, {"b/c": 1, "b\/c": 2}]})", "a[1][\"b/c\"]: duplicate key");
  ExpectFault(R"({"a": {}, "\u0061": {}})", "a: duplicate key");
}

TEST(ReadJson, RefusesNumbersThatDoNotFit) {
  ExpectFault(R"({"limits": {"cpu": 1e999}})", "limits.cpu: number is too large");
  ExpectFault("[0, 9223372036854775808]", "[1]: number is too large");
  ExpectFault("-9223372036854775809", "document: number is too large");
  ExpectFault("[[99999999999999999999999999999]]", "[0][0]: number is too large");
  ExpectFault("[-1e400]", "[0]: number is too large");
}

TEST(ReadJson, NamesThePlaceOfASyntaxError) {
  ExpectFault("{\n  \"a\": NaN\n}", "line 2, column 8: ");
  ExpectFault("[Infinity]", "line 1, column 2: ");
  ExpectFault("[1,]", "line 1, column 4: ");
  ExpectFault("{} x", "line 1, column 4: ");
  ExpectFault("[\"\xC3\xA9\", x]", "line 1, column 7: ");  // columns are characters, not bytes
  ExpectFault("", "line 1, column 1: ");
  ExpectFault("[1", "line 1, column 3: ");
  ExpectFault("/**/1", "line 1, column 1: ");
}

TEST(ReadJson, RefusesWhatOtherReadersLetPass) {
  ExpectFault("\xEF\xBB\xBF{}", "line 1, column 1: begins with a byte order mark");
  ExpectFault(std::string_view("{}\0{}", 5), "line 1, column 3: raw NUL byte");
  ExpectFault("[\"\xC0\xAF\"]", "line 1, column 3: invalid UTF-8");
  ExpectFault("\xFF\xFE", "line 1, column 1: invalid UTF-8");
  ExpectFault(R"(["\ud800"])", "line 1, column ");
  ExpectFault(R"(["\udc00"])", "line 1, column ");
  ExpectFault(R"(["\ud800\ud800"])", "line 1, column ");
  ExpectFault("[\"\n\"]", "line 1, column ");
}

TEST(ReadJson, KeepsItsBounds) {
  JsonBounds bounds;
  bounds.max_depth = 3;
  EXPECT_EQ(FaultOf("[[[1]]]", bounds), "accepted");
  EXPECT_EQ(FaultOf("[0, {\"a\": [[]]}]", bounds), "[1].a[0]: nested deeper than 3 levels");
  bounds.max_values = 3;
  EXPECT_EQ(FaultOf("[1, 2]", bounds), "accepted");
  EXPECT_EQ(FaultOf("[1, 2, 3]", bounds), "document: holds more than 3 values");
  bounds.max_bytes = 4;
  EXPECT_EQ(FaultOf("[1] ", bounds), "accepted");
  EXPECT_EQ(FaultOf("[1]  ", bounds), "document: takes 5 bytes; at most 4 (4 B) are read");
  // The default depth, with far more brackets than the stack of a recursive reader would survive.
  EXPECT_NE(FaultOf(std::string(500'000, '[')).find("nested deeper than 32"), std::string::npos);
}

TEST(ReadJson, MessagesStayShortAndHarmless) {
  const std::string long_text = "\"\xE2\x80\xAE" + std::string(100'000, 'x') + "\"";
  const std::string fault = FaultOf("[" + long_text + " " + long_text + "]");
  EXPECT_LT(fault.size(), 200u) << fault;
  EXPECT_EQ(fault.find("\xE2\x80\xAE"), std::string::npos);
  const std::string key(10'000, 'k');
  EXPECT_LT(FaultOf("{\"" + key + "\": 1, \"" + key + "\": 2}").size(), 200u);
}

TEST(Paths, QuoteWhatIsNotAPlainName) {
  EXPECT_EQ(PathOfMember("", "a"), "a");
  EXPECT_EQ(PathOfMember("a", "b_c-1"), "a.b_c-1");
  EXPECT_EQ(PathOfMember("a", ""), "a[\"\"]");
  EXPECT_EQ(PathOfMember("a", "x\x1b[0m"), "a[\"x\\x1b[0m\"]");
  EXPECT_EQ(PathOfElement("a", 3), "a[3]");
}

}  // namespace
}  // namespace caisson::verify
