#include "verify/output_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "verify/result.h"

namespace caisson::verify {
namespace {

using nlohmann::json;

VerificationResult Wrote(std::vector<std::string> outputs) {
  VerificationResult result;
  result.request_id = "r";
  for (std::string& output : outputs) {
    CheckRecord check;
    check.name = check.tier = "run";
    check.outcome.stdout_stream.total_bytes = output.size();
    // In two halves, as it is captured.
    check.outcome.stdout_stream.head = output.substr(0, output.size() / 2);
    check.outcome.stdout_stream.tail = output.substr(output.size() / 2);
    result.checks.push_back(std::move(check));
  }
  return result;
}

std::string Written(const VerificationResult& result, int64_t* rest_at = nullptr) {
  std::string text;
  const Result<int64_t> rest = WriteJson(result, [&](std::string_view piece) -> Status {
    text += piece;
    return {};
  });
  EXPECT_TRUE(rest);
  if (rest_at != nullptr) *rest_at = *rest;
  return text;
}

TEST(OutputTextTest, TheTwoWaysToWriteAResultAgree) {
  std::string odd;
  for (int i = 0; i < 300; ++i) odd += static_cast<char>(i);
  const std::string cases[] = {"",
                               "hello\n",
                               "\"\\\b\f\n\r\t\x01\x7f",
                               odd,
                               "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                               std::string(200'000, '\0'),
                               std::string(200'000, '\n'),
                               std::string(100'001, '\xff')};
  for (const std::string& output : cases) {
    const VerificationResult result = Wrote({output, "second"});
    int64_t rest_at = 0;
    const std::string text = Written(result, &rest_at);
    EXPECT_EQ(json::parse(text), ToJson(result)) << output.substr(0, 40);
    const json rest = json::parse("{" + text.substr(static_cast<size_t>(rest_at)));
    EXPECT_EQ(rest["request_id"], "r");
    EXPECT_FALSE(rest.contains("stdout"));
  }
}

TEST(OutputTextTest, FloodsOfControlCharactersDoNotGrow) {
  for (const char byte : {'\0', '\x1b', '\xff', '\x80'}) {
    const std::string output(4 << 20, byte);
    const std::string text = Written(Wrote({output}));
    EXPECT_LT(text.size(), output.size() * 3 / 2);
    const json document = json::parse(text);
    EXPECT_NE(document["stdout"].get<std::string>().find("binary output"), std::string::npos);
    EXPECT_EQ(document["stdout_base64"].get<std::string>().size(), (output.size() + 2) / 3 * 4);
  }
}

TEST(OutputTextTest, TextIsNeverCut) {
  const std::string output(4 << 20, '\n');
  const json document = json::parse(Written(Wrote({output})));
  EXPECT_EQ(document["stdout"].get<std::string>(), output);
  EXPECT_FALSE(document.contains("stdout_base64"));
}

TEST(OutputTextTest, ACharacterThatIsCutBetweenHeadAndTailIsWhole) {
  for (const std::string& output :
       {std::string("\xc3\xa9"), std::string("a\xe2\x82\xac"), std::string("\xf0\x9f\x98\x80")})
    EXPECT_EQ(ToJson(Wrote({output}))["stdout"], output);
  EXPECT_EQ(ToJson(Wrote({"\xc3", "\xa9"}))["stdout"], "\xEF\xBF\xBD\xEF\xBF\xBD") << "of two checks it is two halves";
}

}  // namespace
}  // namespace caisson::verify
