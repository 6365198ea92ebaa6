#include "audit/audit_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/corpus.h"
#include "verify/digest.h"

namespace caisson::audit {
namespace {

std::string FaultOf(const std::string& text) {
  const Result<Record> record = ParseAuditRecord(text);
  if (record) return "accepted";
  EXPECT_EQ(record.error().kind, ErrorKind::kInvalid);
  return record.error().message;
}

TEST(AuditRecordCorpus, IsJudgedAsTheSchemaJudgesIt) {
  testing::ExpectAgreement("audit_record", 10, 40, 10,
                           [](const std::string& text) { return FaultOf(text) == "accepted"; });
}

// The examples were made by another program, so this also shows that two implementations hash alike.
TEST(AuditRecord, ExamplesOfTheSchemaAreOneChain) {
  const auto examples = testing::ExamplesOf("audit_record");
  ASSERT_EQ(examples.size(), std::variant_size_v<Details>);
  std::optional<Head> head;
  for (const std::string& example : examples) {
    const Result<Record> record = ParseAuditRecord(example);
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_EQ(Canonical(*record), example);
    const Record again = Chain(record->entry, head, record->time);
    EXPECT_EQ(again.hash, record->hash);
    EXPECT_EQ(Canonical(again), example);
    head = Head{record->seq, record->hash};
  }
}

TEST(AuditRecord, HashIsThatOfPrevAndTheRestInCanonicalForm) {
  Entry entry;
  entry.actor = {"uid:1000", verify::Role::kOperator};
  entry.request_id = "r";
  entry.details = Cancel{"Zoë said \"stop\""};
  const Record record = Chain(entry, Head{6, std::string(64, 'a')}, "2030-01-31T12:00:00.000Z");
  EXPECT_EQ(record.hash, verify::Sha256Hex(std::string(64, 'a') +
                                           R"({"actor":{"role":"operator","subject":"uid:1000"},)"
                                           R"("details":{"reason":"Zoë said \"stop\""},"prev":")" +
                                           std::string(64, 'a') +
                                           R"(","request_id":"r","schema_version":1,"seq":7,)"
                                           R"("time":"2030-01-31T12:00:00.000Z","type":"cancel"})"));
}

TEST(ParseAuditRecord, NamesTheField) {
  EXPECT_EQ(FaultOf("{}"), "schema_version: required field is missing");
  const auto fault = [](const char* name) { return FaultOf(testing::Document("audit_record", "invalid", name)); };
  EXPECT_EQ(fault("override_never_expires"), "details.overrides[0].expires: expected a string, found null");
  EXPECT_EQ(fault("type_of_another"), "details.rule: required field is missing");
  EXPECT_EQ(fault("without_request_id"), "request_id: required field is missing");
  EXPECT_EQ(fault("later_with_zeros_before"), "prev: is 64 zeros in the first record, whose seq is 0, and in no other");
  EXPECT_EQ(
      FaultOf(testing::Document("audit_record", "valid", "admit") + std::string(kMaxRecordBytes, ' ')).substr(0, 16),
      "document: takes ");
}

TEST(AuditRecord, TheLargestFits) {
  std::string widest;
  for (int i = 0; i < 512; ++i) widest += "\xF0\x9D\x84\x9E";
  GrantedOverride grant{std::string(128, 'i'),      std::string(64, 'k'),  widest, widest,
                        "2030-01-31T12:00:00.000Z", widest.substr(0, 1024)};
  Entry entry;
  entry.actor = {widest.substr(0, 1024), verify::Role::kSubmitter};
  entry.tenant = std::string(64, 't');
  entry.request_id = entry.run_id = std::string(128, 'r');
  const std::string digest(64, 'd');
  entry.details = AdmitRecord{digest, digest, digest, std::vector<GrantedOverride>(16, grant)};
  const std::string line = Canonical(Chain(entry, Head{kMaxSeq - 1, digest}, "2030-01-31T12:00:00.000Z"));
  EXPECT_LE(line.size(), kMaxRecordBytes);
  EXPECT_EQ(FaultOf(line), "accepted");
}

TEST(RecordOf, TakesWhateverPolicyGrants) {
  policy::Override granted;
  granted.id = "ovr-1";
  granted.grant = policy::WritePath{"/srv/da\nta"};
  granted.reason = std::string(1000, 'r');
  granted.expires = "2030-02-28T23:59:59+05:30";
  granted.granted_by = std::string(1000, 'g');
  policy::Override typed = granted;
  typed.id = "command-line";
  typed.expires = "end of the run";
  Entry entry;
  entry.actor.subject = "x";
  entry.details = OverridesGranted{{RecordOf(granted), RecordOf(typed)}, ""};
  EXPECT_EQ(FaultOf(Canonical(Chain(entry, std::nullopt, "2030-01-31T12:00:00.000Z"))), "accepted");
}

TEST(OneLine, MakesAnythingAReason) {
  for (const std::string& text : {std::string(), std::string("a\nb\x7f\tc\0d", 9), std::string("\xFF\xC0"),
                                  std::string(100'000, 'x'), std::string("\xE2\x80\xAE")}) {
    Entry entry;
    entry.actor.subject = "x";
    entry.request_id = "r";
    entry.details = Cancel{OneLine(text)};
    EXPECT_EQ(FaultOf(Canonical(Chain(entry, std::nullopt, "2030-01-31T12:00:00.000Z"))), "accepted") << text;
  }
  EXPECT_EQ(OneLine("mount: no\n"), "mount: no ");
}

}  // namespace
}  // namespace caisson::audit
