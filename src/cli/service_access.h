// Shared by the commands that talk to a service: its address, exit codes for its errors, and the display of its
// documents. Its answers are untrusted text.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "cli/exit_codes.h"
#include "client/client.h"

namespace caisson::cli {

// Exit codes in addition to those of verify: 5, the request does not fit the state of the job.

struct ServiceFlags {
  std::string url, token_file;
  bool json = false;
};

// --url, --token-file and --json. `footer` is the command's own help; what all share is appended to it.
void AddServiceFlags(CLI::App& app, ServiceFlags& flags, const std::string& footer);

// Prints an error and returns its exit code.
int Report(const Error& error);

// Runs `work` with a client for the flags' service; its error, or that of finding the service, is reported.
int WithService(const ServiceFlags& flags, const std::function<Result<int>(const client::Client&)>& work);

client::Ask Get(std::string target);
client::Ask Post(std::string target, const nlohmann::json& body = nullptr);
// "/v1/jobs/ID" and what follows it.
std::string JobTarget(const std::string& job_id, const std::string& rest = "");

void PrintJson(const nlohmann::json& document);
// A member as text for a terminal; empty when there is none.
std::string Shown(const nlohmann::json& document, const char* name);
// "  name  value" lines; members without a value are left out.
void PrintFields(const nlohmann::json& document, std::initializer_list<const char*> names);

}  // namespace caisson::cli
