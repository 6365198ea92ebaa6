// caisson audit: checks that the audit log, or the record of a session, is unchanged.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "audit/audit_log.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "session/verify_record.h"

namespace caisson::cli {

namespace {

constexpr char kFooter[] = R"(
Every record holds the hash of the one before it, so the check finds a changed, removed or moved record. It finds a cut-off
end only with --head: the head of the log as an earlier check printed it, kept elsewhere.

The events of a session (events.jsonl) are checked in the same way, and the transcript beside them against what they say.

Exit codes: 0 intact, 1 broken (the line and the cause are named), 2 usage.

Examples:
  caisson audit verify audit.jsonl
  caisson audit verify audit.jsonl --head 41:9b74c9897bac770ffc029102a200c5de…)";

nlohmann::json ToJson(const audit::Verification& verification, const std::string& path) {
  nlohmann::json document = {{"schema_version", 1},
                             {"file", ReplaceInvalidUtf8(path)},
                             {"intact", !verification.finding.has_value()},
                             {"records", verification.records},
                             {"head", nullptr},
                             {"fault", nullptr}};
  if (verification.head) {
    document["head"] = {{"seq", verification.head->seq}, {"hash", verification.head->hash}};
  }
  if (verification.finding) {
    document["fault"] = {{"line", verification.finding->line},
                         {"cause", audit::ChainFaultName(verification.finding->fault)},
                         {"message", ReplaceInvalidUtf8(verification.finding->message)}};
  }
  return document;
}

void Print(const audit::Verification& verification, const std::string& path) {
  const std::string shown = EscapeForTerminal(path);
  if (verification.finding) {
    std::printf("BROKEN  %s  line %lld: %s: %s\n", shown.c_str(), static_cast<long long>(verification.finding->line),
                audit::ChainFaultName(verification.finding->fault),
                EscapeForTerminal(verification.finding->message).c_str());
  } else {
    std::printf("INTACT  %s  %lld %s\n", shown.c_str(), static_cast<long long>(verification.records),
                verification.records == 1 ? "record" : "records");
    if (verification.head) std::printf("head    %s\n", audit::FormatHead(*verification.head).c_str());
  }
}

nlohmann::json ToJson(const session::RecordVerification& record, const std::string& path) {
  nlohmann::json document = ToJson(record.events.chain, path);
  document["intact"] = record.intact();
  document["session_id"] = record.events.session_id;
  document["stopped"] = record.events.stopped;
  document["transcript"] = nullptr;
  if (record.transcript) {
    nlohmann::json transcript = {{"intact", !record.transcript->finding.has_value()},
                                 {"lines", record.transcript->found.lines},
                                 {"sha256", record.transcript->found.sha256},
                                 {"fault", nullptr}};
    if (const auto& finding = record.transcript->finding) {
      transcript["fault"] = {{"line", finding->line}, {"message", ReplaceInvalidUtf8(finding->message)}};
    }
    document["transcript"] = std::move(transcript);
  }
  return document;
}

void Print(const session::RecordVerification& record, const std::string& path) {
  Print(record.events.chain, path);
  if (record.transcript && record.transcript->finding) {
    std::printf("BROKEN  %s  line %lld: %s\n", session::kTranscriptName,
                static_cast<long long>(record.transcript->finding->line),
                EscapeForTerminal(record.transcript->finding->message).c_str());
  } else if (record.transcript) {
    std::printf("INTACT  %s  %lld lines\n", session::kTranscriptName,
                static_cast<long long>(record.transcript->found.lines));
  }
  if (!record.events.chain.finding && !record.events.stopped) {
    std::puts("note    the session has not ended, or the end of its events was cut off: only --head can tell");
  }
}

int VerifySession(const std::string& path, const std::optional<audit::Head>& expected, bool as_json) {
  const Result<session::RecordVerification> record = session::VerifyRecord(path, expected);
  if (!record) {
    Complain(record.error().message);
    return kExitUsage;
  }
  if (as_json)
    std::puts(ToJson(*record, path).dump(2).c_str());
  else
    Print(*record, path);
  return record->intact() ? 0 : 1;
}

int VerifyLog(const std::string& path, const std::string& head, bool as_json) {
  std::optional<audit::Head> expected;
  if (!head.empty()) {
    Result<audit::Head> parsed = audit::ParseHead(head);
    if (!parsed) {
      Complain("--head " + parsed.error().message);
      return kExitUsage;
    }
    expected = *std::move(parsed);
  }
  if (session::IsSessionEventFile(path)) return VerifySession(path, expected, as_json);
  const Result<audit::Verification> verification = audit::Verify(path, expected);
  if (!verification) {
    Complain(verification.error().message);
    return kExitUsage;
  }
  if (as_json)
    std::puts(ToJson(*verification, path).dump(2).c_str());
  else
    Print(*verification, path);
  return verification->finding ? 1 : 0;
}

}  // namespace

int AuditCommand(std::vector<std::string> arguments) {
  std::string path, head;
  bool as_json = false;
  CLI::App app("The audit log.\nUsage: caisson audit verify FILE [--head SEQ:HASH] [--json]", "audit");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  CLI::App* verify = app.add_subcommand("verify", "Check every record, its place and its hash");
  verify->add_option("FILE", path, "The log, or the events.jsonl of a session")->required();
  verify->add_option("--head", head, "A head that the log once had; the log must still contain it")
      ->type_name("SEQ:HASH");
  verify->add_flag("--json", as_json, "Print the finding as JSON");
  verify->footer(kFooter);
  app.require_subcommand(1);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  return VerifyLog(path, head, as_json);
}

}  // namespace caisson::cli
