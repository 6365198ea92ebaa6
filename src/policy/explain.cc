#include "policy/explain.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/words.h"
#include "network/rule.h"
#include "policy/filter_source.h"
#include "policy/network_plan.h"
#include "policy/path_policy.h"
#include "policy/profile_reader.h"

namespace caisson::policy {

using nlohmann::json;

namespace {

// "when argument 1 & 0x243 is 0x0".
std::string Conditions(const json& rule) {
  std::string text;
  for (const json& test : rule.value("args", json::array())) {
    char part[96];
    std::snprintf(part, sizeof(part), "%s argument %u & 0x%llx is 0x%llx", text.empty() ? "when" : " and",
                  test["index"].get<unsigned>(), test["value"].get<unsigned long long>(),
                  test["valueTwo"].get<unsigned long long>());
    text += part;
  }
  return text;
}

std::string Effect(const json& rule) {
  const std::string action = rule["action"];
  if (action == "SCMP_ACT_ALLOW") return "allowed";
  if (action == "SCMP_ACT_ERRNO" && rule["errnoRet"] == 0) return "ignored: reported as done, and not done";
  if (action == "SCMP_ACT_ERRNO") return std::string("refused with ") + ::strerrorname_np(rule["errnoRet"].get<int>());
  const json& notice = rule["x-caisson"];
  const std::string deed = notice["do"],
                    found = notice["class"].get<std::string>() + " (" + notice["reason"].get<std::string>() + ")";
  if (deed == "observe") return "let through to the other walls; recorded as " + found + " when they refuse it";
  if (deed == "kill") return "the sandbox is killed, " + found;
  return std::string("refused with ") + ::strerrorname_np(notice["errno"].get<int>()) + ", " + found;
}

}  // namespace

Result<Explanation> ExplainPath(const Profile& profile, const std::string& path, Access access, Grants& grants) {
  PathRules rules;
  rules.grants = &grants;
  if (profile.project) rules.project = &*profile.project;
  const std::string verdict = ExplainPath(path, access, rules);
  const size_t colon = verdict.rfind(": ");
  return Explanation{verdict.compare(0, 7, "allowed") == 0, verdict.substr(0, colon), verdict.substr(colon + 2)};
}

Result<Explanation> ExplainHost(const Profile& profile, const std::string& host) {
  // Without a port the default port is meant.
  Result<network::HostPort> asked = network::HostPort::Parse(host);
  if (!asked) asked = network::HostPort::Parse(host + ":443");
  if (!asked) return Error::Invalid("--host: " + Quoted(host) + " " + asked.error().message);
  const std::string place =
      (asked->host.name.find(':') == std::string::npos ? asked->host.name : "[" + asked->host.name + "]") + ":" +
      std::to_string(asked->port);
  if (profile.network.mode == NetworkMode::kNone) {
    return Explanation{false,
                       asked->host.name +
                           " cannot be reached: there is only the sandbox's own loopback, and a look-up of the name is "
                           "a NetworkAccessViolation",
                       "network.mode: none"};
  }
  CAISSON_TRY(const NetworkPlan plan, MakeNetworkPlan(profile.network));
  const network::Decision decision = plan.rules.Decide(asked->host, asked->port);
  if (decision.allowed) {
    return Explanation{true,
                       place + " may be reached, as " + network::ProtocolName(decision.allowed_port.protocol) +
                           "; its addresses are judged when it is",
                       "network.allow has " + decision.rule};
  }
  if (std::string_view(decision.reason) == "denied_by_rule")
    return Explanation{false, place + " cannot be reached", "network.deny has " + decision.rule};
  const bool other_port = std::string_view(decision.reason) == "port_not_listed";
  return Explanation{false, place + " cannot be reached",
                     other_port ? "network.allow lists other ports of it" : "network.allow does not list it"};
}

Result<Explanation> ExplainSyscall(const Profile& profile, const std::string& name) {
  if (const Fault fault = FaultInSyscallName(name)) return Error::Invalid("--syscall: " + Quoted(name) + " " + *fault);
  CAISSON_TRY(const json document, FilterDocument(profile.seccomp));
  Explanation explained;
  for (const json& rule : document["syscalls"]) {
    bool named = false;
    for (const json& candidate : rule["names"]) named = named || candidate == name;
    if (!named) continue;
    const std::string when = Conditions(rule);
    explained.what += (explained.what.empty() ? name + ": " : "; ") + Effect(rule) + (when.empty() ? "" : " " + when);
    explained.rule += (explained.rule.empty() ? "seccomp.filter " + profile.seccomp.filter + ": " : " / ") +
                      rule.value("comment", "");
    explained.allowed = explained.allowed || rule["action"] == "SCMP_ACT_ALLOW";
  }
  if (explained.what.empty()) {
    explained.what = name + ": refused with " + ::strerrorname_np(document["defaultErrnoRet"].get<int>()) +
                     ", as if the kernel did not have it; not recorded";
    explained.rule = "seccomp.filter " + profile.seccomp.filter + ": not listed, so the default holds";
  }
  return explained;
}

}  // namespace caisson::policy
