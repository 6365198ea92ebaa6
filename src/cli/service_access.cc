#include "cli/service_access.h"

#include <cstdio>

#include "base/percent.h"
#include "base/utf8.h"
#include "cli/flags.h"

namespace caisson::cli {

using nlohmann::json;

namespace {

constexpr char kSharedFooter[] = R"(
The service is the one at --url or CAISSON_URL (unix:/path, http://127.0.0.1:PORT, https://HOST), else the first at
caisson/caissond.sock below $XDG_RUNTIME_DIR, /run and /var/lib. The service identifies the caller by its
user id, or by the token in CAISSON_TOKEN or --token-file.

Further exit codes: 2 usage or no such job, 3 refused, 4 no service or a failure of it, 5 wrong state of the job.)";

}  // namespace

void AddServiceFlags(CLI::App& app, ServiceFlags& flags, const std::string& footer) {
  app.add_option("--url", flags.url, "The service")->type_name("URL");
  app.add_option("--token-file", flags.token_file, "A file with the bearer token")->type_name("FILE");
  app.add_flag("--json", flags.json, "Print the service's document unchanged");
  app.footer(footer + "\n" + kSharedFooter);
  app.set_help_flag("--help,-h", "Show this help");
}

int Report(const Error& error) {
  Complain(error.message);
  switch (error.kind) {
    case ErrorKind::kInvalid:
    case ErrorKind::kNotFound:
      return kExitUsage;
    case ErrorKind::kDenied:
      return kExitRefused;
    case ErrorKind::kConflict:
      return kExitState;
    case ErrorKind::kUnsupported:
    case ErrorKind::kSystem:
    case ErrorKind::kExhausted:
      return kExitInfrastructure;
  }
  return kExitInfrastructure;
}

int WithService(const ServiceFlags& flags, const std::function<Result<int>(const client::Client&)>& work) {
  Result<client::Endpoint> endpoint = client::FindEndpoint(flags.url, flags.token_file);
  if (!endpoint) return Report(endpoint.error());
  const Result<int> done = work(client::Client(*std::move(endpoint)));
  return done ? *done : Report(done.error());
}

client::Ask Get(std::string target) {
  client::Ask ask;
  ask.target = std::move(target);
  return ask;
}

client::Ask Post(std::string target, const json& body) {
  client::Ask ask;
  ask.method = "POST";
  ask.target = std::move(target);
  if (!body.is_null()) ask.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return ask;
}

std::string JobTarget(const std::string& job_id, const std::string& rest) {
  return "/v1/jobs/" + PercentEncode(job_id) + rest;
}

void PrintJson(const json& document) { std::puts(document.dump(2, ' ', true, json::error_handler_t::replace).c_str()); }

std::string Shown(const json& document, const char* name) {
  const auto found = document.is_object() ? document.find(name) : document.end();
  if (!document.is_object() || found == document.end() || found->is_null()) return "";
  return EscapeForTerminal(found->is_string() ? found->get<std::string>() : found->dump());
}

void PrintFields(const json& document, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string value = Shown(document, name);
    if (!value.empty()) std::printf("  %-16s %s\n", name, value.c_str());
  }
}

}  // namespace caisson::cli
