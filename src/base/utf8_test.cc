#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson {
namespace {

TEST(IsValidUtf8, AcceptsWellFormedText) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("plain"));
  EXPECT_TRUE(IsValidUtf8(std::string_view("nul\0inside", 10)));
  EXPECT_TRUE(IsValidUtf8("\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF"));
  EXPECT_TRUE(IsValidUtf8("\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"));
}

TEST(IsValidUtf8, RefusesIllFormedText) {
  EXPECT_FALSE(IsValidUtf8("\x80"));              // a continuation alone
  EXPECT_FALSE(IsValidUtf8("\xC0\xAF"));          // overlong '/'
  EXPECT_FALSE(IsValidUtf8("\xE0\x80\xAF"));      // overlong in three bytes
  EXPECT_FALSE(IsValidUtf8("\xF0\x80\x80\xAF"));  // overlong in four bytes
  EXPECT_FALSE(IsValidUtf8("\xED\xA0\x80"));      // surrogate U+D800
  EXPECT_FALSE(IsValidUtf8("\xF4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(IsValidUtf8("\xF5\x80\x80\x80"));
  EXPECT_FALSE(IsValidUtf8("\xE2\x82"));  // cut off
  EXPECT_FALSE(IsValidUtf8("ok\xFF"));
}

TEST(DecodeUtf8, YieldsTheCodePoint) {
  EXPECT_EQ(DecodeUtf8("A").code_point, U'A');
  EXPECT_EQ(DecodeUtf8("\xC3\xA9x").code_point, char32_t{0xE9});
  EXPECT_EQ(DecodeUtf8("\xE2\x82\xAC").code_point, char32_t{0x20AC});
  EXPECT_EQ(DecodeUtf8("\xF0\x9F\x98\x80").code_point, char32_t{0x1F600});
  EXPECT_EQ(DecodeUtf8("\xF0\x9F\x98\x80").length, 4u);
}

TEST(ReplaceInvalidUtf8, ReplacesEachMaximalSubpart) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("fine \xE2\x82\xAC"), "fine \xE2\x82\xAC");
  // The example of the Unicode standard, section 3.9: 61 F1 80 80 E1 80 C2 62 80 63 80 BF 64.
  EXPECT_EQ(ReplaceInvalidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + replacement + replacement + replacement + "b" + replacement + "c" + replacement + replacement + "d");
  // A surrogate is three ill-formed bytes, because no prefix of it could begin a well-formed sequence.
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), replacement + replacement + replacement);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), replacement);
}

TEST(EscapeForTerminal, KeepsOrdinaryTextAsItIs) {
  EXPECT_EQ(EscapeForTerminal("main.py"), "main.py");
  const std::string foreign = "caf\xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80";
  EXPECT_EQ(EscapeForTerminal(foreign), foreign);
  EXPECT_EQ(EscapeForTerminal("back\\slash"), "back\\slash");
}

TEST(EscapeForTerminal, ShowsWhatCouldDriveATerminal) {
  EXPECT_EQ(EscapeForTerminal("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(EscapeForTerminal(std::string_view("\0\a\b\r\x7f", 5)), "\\x00\\x07\\x08\\x0d\\x7f");
  EXPECT_EQ(EscapeForTerminal("\xC2\x9B"
                              "31m"),
            "\\u{009b}31m");  // C1 CSI
  EXPECT_EQ(EscapeForTerminal("\x9B"
                              "31m"),
            "\\x9b"
            "31m");  // the same as a raw byte
  EXPECT_EQ(EscapeForTerminal("\xE2\x80\xAE"
                              "txt.exe"),
            "\\u{202e}txt.exe");
  EXPECT_EQ(EscapeForTerminal("\xE2\x80\xAA\xE2\x81\xA6\xE2\x81\xA9"), "\\u{202a}\\u{2066}\\u{2069}");
  EXPECT_EQ(EscapeForTerminal("\xE2\x80\xA8"), "\\u{2028}");
  EXPECT_EQ(EscapeForTerminal("\xE2\x82"), "\\xe2\\x82");
}

TEST(EscapeForTerminal, KeepsNewlineAndTabOnlyWhenAsked) {
  EXPECT_EQ(EscapeForTerminal("a\n\tb"), "a\\x0a\\x09b");
  EXPECT_EQ(EscapeForTerminal("a\n\tb", LineBreaks::kKeep), "a\n\tb");
  // A carriage return could overwrite the line before it.
  EXPECT_EQ(EscapeForTerminal("a\r\n", LineBreaks::kKeep), "a\\x0d\n");
  EXPECT_EQ(EscapeForTerminal("\x1b\n", LineBreaks::kKeep), "\\x1b\n");
}

}  // namespace
}  // namespace caisson
