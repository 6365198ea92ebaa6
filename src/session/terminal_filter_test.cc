#include "session/terminal_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"

namespace caisson::session {
namespace {

std::string Filtered(const std::string& bytes, FilterStrength strength = FilterStrength::kReplay) {
  TerminalFilter filter(strength);
  return filter.Filter(bytes);
}

// What comes through must be the same however the bytes are cut.
std::string ByteByByte(const std::string& bytes, FilterStrength strength) {
  TerminalFilter filter(strength);
  std::string out;
  for (const char byte : bytes) out += filter.Filter(std::string(1, byte));
  return out;
}

const std::vector<FilterStrength> kBoth = {FilterStrength::kReplay, FilterStrength::kAttach};

TEST(TerminalFilter, PassesTextColoursMovementAndErasing) {
  for (const std::string& text :
       std::vector<std::string>{"plain text\r\n", "na\xC3\xAFve \xE2\x94\x80 \xF0\x9F\x91\x8D", "\x1b[1;31mred\x1b[0m",
                                "\x1b[38;5;11mx\x1b[m", "\x1b[48;2;10;20;15mx", "\x1b[38:2::1:2:3mx", "\x1b[4:3mwavy",
                                "\x1b[10;20H\x1b[2J\x1b[K\x1b[3A\x1b[4D", "\x1b[?25l\x1b[?25h",
                                "\x1b"
                                "7\x1b"
                                "8\x1bM",
                                "\x1b(0lqk\x1b(B", "\x1b[5;20r", "\b\t", "\x1b[2@\x1b[3P\x1b[2L"}) {
    for (const FilterStrength strength : kBoth) {
      EXPECT_EQ(Filtered(text, strength), text) << EscapeForTerminal(text);
      EXPECT_EQ(ByteByByte(text, strength), text) << EscapeForTerminal(text);
    }
  }
}

TEST(TerminalFilter, RemovesWhatWritesTitlesAnswersOrChangesFonts) {
  for (const std::string& hostile :
       std::vector<std::string>{"\x1b]52;c;cm0gLXJm\x07",      // clipboard
                                "\x1b]52;c;cm0gLXJm\x1b\\",    // the same, with the other end
                                "\x1b]8;;http://evil/\x1b\\",  // link
                                "\x1b]0;title\x07",
                                "\x1b]2;t\x07",      // titles
                                "\x1bktitle\x1b\\",  // of screen
                                "\x1b]10;?\x07",
                                "\x1b]4;1;?\x07",  // colours are answered
                                "\x1b]50;font\x07",
                                "\x1b[11m",
                                "\x1b[0;11m",
                                "\x1b[20m",                  // fonts
                                "\x1b]1337;File=:AAAA\x07",  // iTerm
                                "\x1bP+q544e\x1b\\",
                                "\x1bP$qm\x1b\\",            // DECRQSS and XTGETTCAP
                                "\x1b_Gi=1,a=q;AAAA\x1b\\",  // kitty
                                "\x1b^pm\x1b\\",
                                "\x1bXsos\x1b\\",  // PM and SOS
                                "\x1b[6n",
                                "\x1b[5n",
                                "\x1b[?6n",
                                "\x1b[c",
                                "\x1b[>c",
                                "\x1b[=c",
                                "\x1b[0c",
                                "\x1bZ",
                                "\x05",  // reports
                                "\x1b[21t",
                                "\x1b[8;9;9t",
                                "\x1b[>q",
                                "\x1b[?u",
                                "\x1b[?2026$p",
                                "\x1b[x",
                                "\x1b[1*y",
                                "\x1b[3J",  // erases what was there before the session
                                "\x1b[i",
                                "\x1b[5i",  // printer
                                "\x1b"
                                "c",
                                "\x1b[!p",
                                "\x1b#8",
                                "\x1b%@",
                                "\x1b[2h",
                                "\x1b[20h",
                                "\x1b[?3h",
                                "\x1b[1;2s",
                                "\x1b(A",
                                "\x1bn",
                                "\x1b[>4;2m",
                                "\x1b[>1u",
                                "\x1b[99999999b",
                                "\x1b[1;2;3;4;5T",
                                "\x7f",
                                std::string("\0", 1)}) {
    for (const FilterStrength strength : kBoth) {
      const std::string text = "before" + hostile + "after";
      EXPECT_EQ(Filtered(text, strength), "beforeafter") << EscapeForTerminal(hostile);
      EXPECT_EQ(ByteByByte(text, strength), "beforeafter") << EscapeForTerminal(hostile);
    }
  }
}

// The wrapped sequence ends tmux's envelope as a terminal sees it, so it is judged, and removed, by itself.
TEST(TerminalFilter, NothingPassesThroughTmux) {
  EXPECT_EQ(Filtered("before\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\after"), "beforeafter");
}

TEST(TerminalFilter, C1ControlsAreAnotherSpellingOfEscape) {
  // As UTF-8: U+009B is CSI, U+009D is OSC, U+0090 is DCS, U+009C ends strings, U+0085 is the next line.
  EXPECT_EQ(Filtered("a\xC2\x9B"
                     "6nb"),
            "ab");
  EXPECT_EQ(Filtered("a\xC2\x9B"
                     "31mb"),
            "a\x1b[31mb");
  EXPECT_EQ(Filtered("a\xC2\x9D"
                     "52;c;eA==\xC2\x9C"
                     "b"),
            "ab");
  EXPECT_EQ(Filtered("a\xC2\x90"
                     "+q\xC2\x9C"
                     "b"),
            "ab");
  EXPECT_EQ(Filtered("a\xC2\x85"
                     "b"),
            "a\x1b"
            "Eb");
  // As bytes they are not UTF-8.
  EXPECT_EQ(Filtered("a\x9B"
                     "6nb"),
            "a\xEF\xBF\xBD"
            "6nb");
  EXPECT_EQ(Filtered("a\x9D"
                     "52;c;x\x9C"
                     "b"),
            "a\xEF\xBF\xBD"
            "52;c;x\xEF\xBF\xBD"
            "b");
}

TEST(TerminalFilter, FullScreenProgramsWorkOnAttachOnly) {
  for (const std::string& needed :
       std::vector<std::string>{"\x1b[?1049h", "\x1b[?1000h", "\x1b[?1006h", "\x1b[?2004h", "\x1b[?1h",
                                "\x1b=", "\x1b[4h", "\x1b[2 q", "\x1b[?1004h", "\x07"}) {
    EXPECT_EQ(Filtered(needed, FilterStrength::kAttach), needed) << EscapeForTerminal(needed);
    EXPECT_EQ(Filtered(needed, FilterStrength::kReplay), "") << EscapeForTerminal(needed);
  }
  // Of several modes, only the permitted ones pass.
  EXPECT_EQ(Filtered("\x1b[?3;1049;40h", FilterStrength::kAttach), "\x1b[?1049h");
}

TEST(TerminalFilter, FinishLeavesTheTerminalAsItWas) {
  TerminalFilter filter(FilterStrength::kAttach);
  filter.Filter("\x1b[?1049h\x1b[?1000h\x1b[?2004h\x1b[?25l\x1b=\x1b[31m\x1b[2;5r\x1b(0\x1b[4h\x1b[5 q");
  const std::string undone = filter.Finish();
  for (const std::string& part :
       std::vector<std::string>{"\x1b[?1049l", "\x1b[?1000l", "\x1b[?2004l", "\x1b[?25h", "\x1b>", "\x1b[0m", "\x1b[r",
                                "\x1b(B", "\x1b[4l", "\x1b[0 q"}) {
    EXPECT_NE(undone.find(part), std::string::npos) << EscapeForTerminal(part);
  }
  EXPECT_EQ(filter.Finish(), "");  // it began anew
  filter.Filter("\x1b[?1049h\x1b[?1049l\x1b[?25l\x1b[?25h");
  EXPECT_EQ(filter.Finish(), "");  // the program undid it itself
}

TEST(TerminalFilter, AnUnterminatedSequenceDoesNotSwallowLaterText) {
  for (const std::string& start :
       std::vector<std::string>{"\x1b]52;c;", "\x1b]0;", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x1bk", "\x1b[",
                                "\x1b[1;", "\x1b", "\x1b(", "\xC2\x9D", "\xC2\x9B"}) {
    for (const FilterStrength strength : kBoth) {
      TerminalFilter filter(strength);
      std::string out = filter.Filter(start);
      for (int i = 0; i < 3000; ++i) out += filter.Filter("0123456789012345678901234567890 ");
      EXPECT_NE(out.find("0123456789"), std::string::npos) << EscapeForTerminal(start);
      out = filter.Filter("\x1b[0mLATER");
      EXPECT_EQ(out, "\x1b[0mLATER") << EscapeForTerminal(start);
    }
  }
  // All but images end at a line break.
  EXPECT_EQ(Filtered("\x1b]52;c;eA==\r\nlater"), "\r\nlater");
  EXPECT_EQ(Filtered("\x1b]0;title \x1b[32mlater"), "\x1b[32mlater");
  EXPECT_EQ(Filtered("\x1bPq#0\n#1\x1b\\later"), "later");
}

TEST(TerminalFilter, SplitCharactersArePutTogether) {
  TerminalFilter filter(FilterStrength::kReplay);
  EXPECT_EQ(filter.Filter("\xE2"), "");
  EXPECT_EQ(filter.Filter("\x94"), "");
  EXPECT_EQ(filter.Filter("\x80|"), "\xE2\x94\x80|");
  EXPECT_EQ(filter.Filter("\xE2\x94"), "");
  EXPECT_EQ(filter.Filter("x"), "\xEF\xBF\xBDx");
  EXPECT_EQ(filter.Filter("\xF0\x9F"), "");
  EXPECT_EQ(filter.Finish(), "\xEF\xBF\xBD");
}

TEST(TerminalFilter, CountsAndShowsWhatItRemoves) {
  TerminalFilter filter(FilterStrength::kReplay, RemovedSequences::kShown);
  EXPECT_EQ(filter.Filter("a\x1b]52;c;eA==\x07"
                          "b"),
            "a\\x1b]52;c;eA==b");
  EXPECT_EQ(filter.Filter("\x1b[6n"), "\\x1b[6n");
  const std::string shown = filter.Filter("\x1b]0;" + std::string(10000, 'x') + "\x07");
  EXPECT_LT(shown.size(), 100u);
  EXPECT_NE(shown.find("…"), std::string::npos);
  EXPECT_EQ(filter.removed(), 3);
}

}  // namespace
}  // namespace caisson::session
