// caisson attest: signs results and checks signatures.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "attest/envelope.h"
#include "attest/key.h"
#include "audit/hash_chain.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "linux/files.h"
#include "session/session_statement.h"

namespace caisson::cli {

namespace {

constexpr char kFooter[] = R"(
A signature says: this key's owner vouches that verifying the source with this digest, under this policy and isolation,
gave this verdict and this result document, byte for byte. It is an in-toto statement in a DSSE envelope, signed with
Ed25519. Checking one needs neither a network nor this machine, only the public key.

verify also takes the signed statement about a session: who opened what under which policy, and the hashes of its events,
its transcript and its changes.

Exit codes: 0 done, or the attestation is intact; 1 it is not (the cause is named); 2 usage.

Examples:
  caisson attest keygen --out signing.key              # and signing.key.pub, for verifiers
  caisson verify answer.py --result result.json
  caisson attest sign --key signing.key result.json --out result.attestation.json
  caisson attest verify --key signing.key.pub result.attestation.json --result result.json)";

int Refuse(const Error& error) {
  Complain(error.message);
  return kExitUsage;
}

Status WriteLine(const std::string& path, const std::string& line) {
  const std::string text = line + "\n";
  if (path.empty()) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
      return Error::System(errno, "write to standard output");
    return {};
  }
  CAISSON_TRY(const UniqueFd file, linux_sys::OpenOutput(path, O_TRUNC));
  for (size_t written = 0; written < text.size();) {
    const ssize_t size = ::write(file.get(), text.data() + written, text.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error::System(errno, "write " + path);
    written += static_cast<size_t>(size);
  }
  return {};
}

int GenerateKeyFiles(const std::string& path) {
  const Result<std::string> id = attest::GenerateKey(path);
  if (!id) return Refuse(id.error());
  const std::string shown = EscapeForTerminal(path);
  std::printf("private  %s      keep it secret: its holder signs in your name\n", shown.c_str());
  std::printf("public   %s.pub  give it to the verifiers\n", shown.c_str());
  std::printf("key id   %s\n", id->c_str());
  return 0;
}

int SignResult(const std::string& key_path, const std::string& result_path, const std::string& out) {
  const Result<attest::PrivateKey> key = attest::LoadPrivateKey(key_path);
  if (!key) return Refuse(key.error());
  const Result<std::string> result = linux_sys::ReadDocument(result_path, attest::kMaxResultBytes);
  if (!result) return Refuse(result.error());
  const Result<std::string> envelope = attest::Sign(*result, *key, {});
  if (!envelope) return Refuse(Error(envelope.error()).In(result_path));
  if (const Status written = WriteLine(out, *envelope); !written) return Refuse(written.error());
  return 0;
}

nlohmann::json ToJson(const attest::Verification& verification, const std::string& path) {
  nlohmann::json document = {{"schema_version", 1},
                             {"file", ReplaceInvalidUtf8(path)},
                             {"intact", !verification.finding.has_value()},
                             {"key_id", nullptr},
                             {"statement", nullptr},
                             {"fault", nullptr}};
  if (verification.finding) {
    document["fault"] = {{"cause", attest::FaultName(verification.finding->fault)},
                         {"message", ReplaceInvalidUtf8(verification.finding->message)}};
  } else {
    document["key_id"] = verification.key_id;
    document["statement"] = nlohmann::json::parse(attest::Canonical(verification.statement));
  }
  return document;
}

void Print(const attest::Verification& verification, const std::string& path, bool with_result) {
  const std::string shown = EscapeForTerminal(path);
  if (verification.finding) {
    std::printf("BROKEN  %s  %s: %s\n", shown.c_str(), attest::FaultName(verification.finding->fault),
                EscapeForTerminal(verification.finding->message).c_str());
    return;
  }
  const attest::Statement& statement = verification.statement;
  const auto or_none = [](const std::string& text) { return text.empty() ? "none" : text.c_str(); };
  std::printf("INTACT   %s\n", shown.c_str());
  std::printf("verdict  %s  %s  (request %s, attempt %lld)\n", verify::StatusName(statement.status),
              or_none(statement.failure_class), statement.request_id.c_str(),
              static_cast<long long>(statement.attempt));
  std::printf("source   %s\n", or_none(statement.digests.source));
  std::printf("policy   %s\n", or_none(statement.digests.policy));
  std::printf("result   %s  %s\n", statement.digests.result.c_str(),
              with_result ? "is the file given" : "not checked: give it with --result");
  std::printf("signed   %s by %s\n", statement.time.c_str(), verification.key_id.c_str());
}

nlohmann::json ToJson(const session::SessionStatementCheck& check, const std::string& path) {
  nlohmann::json document = {{"schema_version", 1},
                             {"file", ReplaceInvalidUtf8(path)},
                             {"intact", !check.finding.has_value()},
                             {"key_id", nullptr},
                             {"statement", nullptr},
                             {"fault", nullptr}};
  if (check.finding) {
    document["fault"] = {{"cause", attest::FaultName(check.finding->fault)},
                         {"message", ReplaceInvalidUtf8(check.finding->message)}};
  } else {
    document["key_id"] = check.key_id;
    document["statement"] = nlohmann::json::parse(session::Canonical(check.statement));
  }
  return document;
}

void Print(const session::SessionStatementCheck& check, const std::string& path) {
  const std::string shown = EscapeForTerminal(path);
  if (check.finding) {
    std::printf("BROKEN  %s  %s: %s\n", shown.c_str(), attest::FaultName(check.finding->fault),
                EscapeForTerminal(check.finding->message).c_str());
    return;
  }
  const session::SessionStatement& statement = check.statement;
  std::printf("INTACT      %s\n", shown.c_str());
  std::printf("session     %s  %s  (profile %s, runtime %s)\n", statement.session_id.c_str(), statement.state.c_str(),
              EscapeForTerminal(statement.profile).c_str(), statement.runtime.c_str());
  std::printf("project     %s\n", EscapeForTerminal(statement.project).c_str());
  std::printf("policy      %s\n", statement.policy_digest.c_str());
  std::printf("events      %s  compare: caisson audit verify events.jsonl --head\n",
              audit::FormatHead(statement.events).c_str());
  std::printf("transcript  %s\n", statement.transcript.sha256.c_str());
  std::printf("changes     %s\n", statement.diff_digest.empty() ? "none" : statement.diff_digest.c_str());
  std::printf("signed      %s by %s\n", statement.time.c_str(), check.key_id.c_str());
}

struct VerifyFlags {
  std::vector<std::string> keys;
  std::string envelope, result;
  bool json = false;
};

int VerifyAttestation(const VerifyFlags& flags) {
  std::vector<attest::PublicKey> keys;
  for (const std::string& path : flags.keys) {
    Result<attest::PublicKey> key = attest::LoadPublicKey(path);
    if (!key) return Refuse(key.error());
    keys.push_back(*std::move(key));
  }
  const Result<std::string> envelope = linux_sys::ReadDocument(flags.envelope, attest::kMaxEnvelopeBytes);
  if (!envelope) return Refuse(envelope.error());
  const attest::OpenedEnvelope opened = attest::OpenEnvelope(*envelope, keys);
  if (!opened.finding && session::IsSessionStatement(opened.payload)) {
    if (!flags.result.empty()) return Refuse(Error::Invalid("--result: the statement is about a session"));
    const session::SessionStatementCheck check = session::VerifySessionEnvelope(*envelope, keys);
    if (flags.json)
      std::puts(ToJson(check, flags.envelope).dump(2).c_str());
    else
      Print(check, flags.envelope);
    return check.finding ? 1 : 0;
  }
  std::optional<std::string> result;
  if (!flags.result.empty()) {
    Result<std::string> read = linux_sys::ReadDocument(flags.result, attest::kMaxResultBytes);
    if (!read) return Refuse(read.error());
    result = *std::move(read);
  }
  const attest::Verification verification = attest::VerifyEnvelope(*envelope, keys, result);
  if (flags.json)
    std::puts(ToJson(verification, flags.envelope).dump(2).c_str());
  else
    Print(verification, flags.envelope, result.has_value());
  return verification.finding ? 1 : 0;
}

}  // namespace

int AttestCommand(std::vector<std::string> arguments) {
  std::string key, out, result;
  VerifyFlags flags;
  CLI::App app("Signed results.\nUsage: caisson attest keygen|sign|verify", "attest");
  app.footer(kFooter);
  app.set_help_flag("--help,-h", "Show this help");
  app.require_subcommand(1);

  CLI::App* keygen = app.add_subcommand("keygen", "Make an Ed25519 key: KEY for its owner only, and KEY.pub");
  keygen->add_option("--out", out, "The private key's file; it must not exist")->required()->type_name("KEY");

  CLI::App* sign = app.add_subcommand("sign", "Sign a result document");
  sign->add_option("--key", key, "The private key")->required()->type_name("KEY");
  sign->add_option("RESULT", result, "A result document, as verify --result writes it")->required();
  sign->add_option("--out", out, "Where to write the attestation; standard output without it")->type_name("FILE");

  CLI::App* verify = app.add_subcommand("verify", "Check that an attestation is intact and signed by a given key");
  verify->add_option("--key", flags.keys, "A trusted public key; may be repeated")
      ->required()
      ->allow_extra_args(false)
      ->type_name("PUB.pem");
  verify->add_option("ENVELOPE", flags.envelope, "The attestation")->required();
  verify->add_option("--result", flags.result, "The result document that it must describe")->type_name("RESULT");
  verify->add_flag("--json", flags.json, "Print the finding and the statement as JSON");
  for (CLI::App* command : {keygen, sign, verify}) command->footer(kFooter);

  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  if (keygen->parsed()) return GenerateKeyFiles(out);
  if (sign->parsed()) return SignResult(key, result, out);
  return VerifyAttestation(flags);
}

}  // namespace caisson::cli
