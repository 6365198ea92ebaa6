// caisson audit: is the audit log as it was written?
#include <cstdio>
#include <nlohmann/json.hpp>

#include "audit/audit_log.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"

namespace caisson::cli {

namespace {

constexpr int kUsage = 2;

constexpr char kFooter[] = R"(
Every record holds the hash of the one before it, so a change, a removal or a move shows by itself. That the end was cut
off shows only against a head that was noted elsewhere: the last line of an earlier check, given with --head.

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

int VerifyLog(const std::string& path, const std::string& head, bool as_json) {
  std::optional<audit::Head> expected;
  if (!head.empty()) {
    Result<audit::Head> parsed = audit::ParseHead(head);
    if (!parsed) {
      Complain("--head " + parsed.error().message);
      return kUsage;
    }
    expected = *std::move(parsed);
  }
  const Result<audit::Verification> verification = audit::Verify(path, expected);
  if (!verification) {
    Complain(verification.error().message);
    return kUsage;
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
  verify->add_option("FILE", path, "The log")->required();
  verify->add_option("--head", head, "A head that the log once had: it must still be in it")->type_name("SEQ:HASH");
  verify->add_flag("--json", as_json, "Print the finding as JSON");
  verify->footer(kFooter);
  app.require_subcommand(1);
  if (const auto exit_code = Parse(app, std::move(arguments), kUsage)) return *exit_code;
  return VerifyLog(path, head, as_json);
}

}  // namespace caisson::cli
