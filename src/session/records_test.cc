// The files that a session keeps about itself: manifest, journal and stamp.
#include <gtest/gtest.h>

#include <string>

#include "session/journal.h"
#include "session/manifest.h"
#include "session/record.h"
#include "session/stamp.h"

namespace caisson::session {
namespace {

const std::string kStaging = ".caisson-apply-00112233445566778899aabbccddeeff";

TEST(Manifest, ReadsWhatItWrites) {
  Manifest manifest;
  manifest.entries["a b\n%\xff"] = {EntryType::kFile, 0644, 12, 34, 56};
  manifest.entries["d"] = {EntryType::kDirectory, 02755, 0, UINT64_MAX, INT64_MAX};
  const std::string text = ManifestToText(manifest);
  EXPECT_EQ(text,
            "caisson-manifest-1\nfile 420 12 34 56 a%20b%0a%25%ff\n"
            "directory 1517 0 18446744073709551615 9223372036854775807 d\nend 2\n");
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(ManifestToText(*parsed), text);
}

TEST(Manifest, RefusesDamage) {
  ASSERT_TRUE(ParseManifest("caisson-manifest-1\nfile 420 1 2 3 a\nend 1\n"));
  for (const std::string lines : {"",
                                  "end 1",
                                  "end 0\nend 0",
                                  "file 420 1 2 3 a\nend 0",
                                  "file 420 1 2 3 a\nfile 420 1 2 3 a\nend 2",
                                  "file 420 1 2 3\nend 1",
                                  "file 420 1 2 3 a b\nend 1",
                                  "file 4096 1 2 3 a\nend 1",
                                  "file -1 1 2 3 a\nend 1",
                                  "file 0420 1 2 3 a\nend 1",
                                  "file 420 9223372036854775808 2 3 a\nend 1",
                                  "file 420 1 18446744073709551616 3 a\nend 1",
                                  "file 420 1 2 9223372036854775808 a\nend 1",
                                  "absent 420 1 2 3 a\nend 1",
                                  "pipe 420 1 2 3 a\nend 1",
                                  "file 420 1 2 3 /a\nend 1",
                                  "file 420 1 2 3 a/\nend 1",
                                  "file 420 1 2 3 a//b\nend 1",
                                  "file 420 1 2 3 .\nend 1",
                                  "file 420 1 2 3 a/../b\nend 1",
                                  "file 420 1 2 3 %2e%2e\nend 1",
                                  "file 420 1 2 3 a%00\nend 1",
                                  "file 420 1 2 3 a%4\nend 1",
                                  "file 420 1 2 3 a%FF\nend 1",
                                  "file 420 1 2 3 \xff\nend 1",
                                  "file 420 1 2 3 %61\nend 1",
                                  "file  420 1 2 3 a\nend 1",
                                  "file 420 1 2 3 a\nend 01",
                                  "file 420 1 2 3 a\nend"}) {
    EXPECT_FALSE(ParseManifest("caisson-manifest-1\n" + lines + "\n")) << lines;
  }
  EXPECT_FALSE(ParseManifest(""));
  EXPECT_FALSE(ParseManifest("caisson-manifest-2\nend 0\n"));
  EXPECT_FALSE(ParseManifest("caisson-manifest-1\nend 0"));  // torn
}

TEST(Manifest, HasBounds) {
  DiffLimits limits;
  limits.entries = 1;
  EXPECT_FALSE(ParseManifest("caisson-manifest-1\nfile 0 1 2 3 a\nfile 0 1 2 3 b\nend 2\n", limits));
  limits = {};
  limits.path_bytes = 3;
  EXPECT_TRUE(ParseManifest("caisson-manifest-1\nfile 0 1 2 3 a/b\nend 1\n", limits));
  EXPECT_FALSE(ParseManifest("caisson-manifest-1\nfile 0 1 2 3 a/bc\nend 1\n", limits));
}

Journal FixedJournal() {
  Journal journal;
  journal.state = Journal::State::kSwapping;
  journal.project_device = 1;
  journal.project_inode = 2;
  journal.swapped_from_ns = 3;
  journal.staging = kStaging;
  ApplyStep step;
  step.kind = ApplyStep::Kind::kReplace;
  step.path = "a b";
  step.slot = 4;
  step.prepared = {5, 6, 7, 8, 9};
  step.host = {10, 11, 12, 13, 14};
  step.old_mode = 0644;
  step.new_mode = 07777;
  journal.steps = {step};
  return journal;
}

TEST(Journal, ReadsWhatItWrites) {
  const std::string text = JournalToText(FixedJournal());
  EXPECT_EQ(text, "caisson-apply-1 swapping 1 2 3 " + kStaging +
                      "\nreplace 4 5 6 7 8 9 10 11 12 13 14 420 4095 a%20b\nend 1\n");
  const auto parsed = ParseJournal(text);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(JournalToText(*parsed), text);
}

TEST(Journal, RefusesDamage) {
  const std::string good = JournalToText(FixedJournal());
  const auto with = [&](const std::string& old, const std::string& fresh) {
    std::string text = good;
    const size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    return text.replace(at, old.size(), fresh);
  };
  for (const std::string& text : {std::string(),
                                  with("apply-1", "apply-2"),
                                  with("swapping", "swapped"),
                                  with("swapping 1", "swapping -1"),
                                  with(kStaging, "d"),
                                  with(kStaging, "../" + kStaging),
                                  with("eeff\n", "eefg\n"),
                                  with("eeff\n", "eeff0\n"),
                                  with("replace", "exchange"),
                                  with("replace 4", "replace x"),
                                  with(" 420 ", " 4096 "),
                                  with(" 4095 ", " 4096 "),
                                  with("a%20b", "../b"),
                                  with("a%20b", "/b"),
                                  with("a%20b", "a b"),
                                  with("end 1", "end 2"),
                                  with("end 1\n", ""),
                                  with("end 1\n", "end 1\nend 1\n"),
                                  with("end 1\n", "end 1"),
                                  with(" 14 ", " 9223372036854775808 "),
                                  with(" 3 ", " 9223372036854775808 ")}) {
    EXPECT_FALSE(ParseJournal(text)) << text;
  }
  // Cut anywhere, it is not taken for a shorter one.
  for (size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(ParseJournal(good.substr(0, length))) << length;
}

TEST(Stamp, ReadsWhatItWritesAndNothingElse) {
  const auto stamp = Stamp::Parse(Stamp{1234567890123456789}.ToText());
  ASSERT_TRUE(stamp);
  EXPECT_EQ(stamp->ctime_ns, 1234567890123456789);
  for (const char* text : {"", "-1", "1 ", " 1", "0x1", "9223372036854775808", "1\n"}) {
    EXPECT_FALSE(Stamp::Parse(text)) << text;
  }
}

}  // namespace
}  // namespace caisson::session
