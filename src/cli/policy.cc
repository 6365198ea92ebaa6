// caisson policy: read, check, explain, compare and render the isolation spec.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/utf8.h"
#include "base/words.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "policy/explain.h"
#include "policy/losses.h"
#include "policy/profile_json.h"
#include "policy/render.h"

namespace caisson::cli {

namespace {

using nlohmann::ordered_json;

constexpr char kHelp[] = R"(Read, check, explain, compare and render the isolation spec.
Usage: caisson policy COMMAND [flags]

  list                         all profiles
  show [PROFILE]               the effective profile, after extends (and --role's overrides with --policy)
  check FILE                   check a profile or policy file, and list what it gives up
  explain --path P [--access A] | --host H | --syscall S
                               the outcome of an access, and the rule that decides it
  diff A B                     where two profiles differ
  render --format F [PROFILE]  for another tool: oci, seccomp, apparmor, selinux, docker, kubernetes

PROFILE is a name or a FILE.yaml; balanced when it is left out.

Flags:
  --profile PROFILE            the same, for explain
  --profiles DIR               where your own profiles are; default /etc/caisson/profiles
  --policy FILE, --role ROLE   rules and role whose overrides are applied
  --json                       machine-readable output

Exit codes: 0 fine, 1 the file is faulty or (check) the native runtime refuses it, 2 usage.

Examples:
  caisson policy show strict
  caisson policy check my-profile.yaml
  caisson policy explain --syscall ptrace
  caisson policy render --format oci > config.json
)";

struct Flags {
  SharedFlags shared;
  std::string path, host, syscall, access = "ro", format;
  std::vector<std::string> names;
  policy::RuntimeDescription native;
};

int Fail(const Error& error, int exit_code = kExitFailed) {
  Complain(error.message);
  return exit_code;
}

void Print(const ordered_json& document) {
  std::puts(document.dump(2, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

ordered_json ToJson(const std::vector<policy::Loss>& losses, const policy::RuntimeDescription& native) {
  ordered_json list = ordered_json::array();
  for (const policy::Loss& loss : losses)
    list.push_back({{"wall", loss.wall}, {"lost", loss.what}, {"native_runs", !native.NeedsWall(loss.wall)}});
  return list;
}

// The named profile with the role's overrides applied; fills `grants`, if given, with the profile's own.
Result<policy::RunPlan> Effective(const Flags& flags, const std::string& name, policy::Grants* grants = nullptr) {
  Flags wanted = flags;
  wanted.shared.profile = name.empty() ? "balanced" : name;
  CAISSON_TRY(const verify::Authority authority, ReadAuthority(wanted.shared));
  CAISSON_TRY(verify::Admission admission, verify::Admission::Open(authority, "balanced", ""));
  if (grants != nullptr) *grants = std::move(admission.grants());
  return std::move(admission.plan());
}

int List(const Flags& flags) {
  Result<verify::Authority> authority = ReadAuthority(flags.shared);
  if (!authority) return Fail(authority.error());
  ordered_json list = ordered_json::array();
  bool faulty = false;
  for (const std::string& name : authority->profiles.Names()) {
    const Result<policy::Profile> profile = authority->profiles.Find(name);
    if (!profile) {
      faulty = true;
      Complain(profile.error().message);
      continue;
    }
    list.push_back({{"name", name},
                    {"built_in", profile->built_in == name},
                    {"strength", policy::NameOf(profile->strength)},
                    {"description", profile->description}});
  }
  if (flags.shared.json) {
    Print(list);
  } else {
    for (const ordered_json& one : list) {
      std::printf("%-16s %-8s %s\n", one["name"].get<std::string>().c_str(), one["strength"].get<std::string>().c_str(),
                  one["description"].get<std::string>().c_str());
    }
  }
  return faulty ? kExitFailed : 0;
}

int Show(const Flags& flags) {
  Result<policy::RunPlan> plan = Effective(flags, flags.names.empty() ? "" : flags.names[0]);
  if (!plan) return Fail(plan.error());
  plan->profile.limits = plan->limits;
  if (flags.shared.json)
    Print(policy::ToJson(plan->profile));
  else
    std::fputs(policy::ToYaml(plan->profile).c_str(), stdout);
  return 0;
}

int CheckRules(const Flags& flags, const std::string& file, const std::string& text) {
  const Result<policy::Rules> rules = policy::ReadRules(text, file);
  if (!rules) return Fail(rules.error());
  if (flags.shared.json) {
    Print({{"file", file}, {"kind", "policy"}, {"rules", rules->risk.size()}, {"overrides", rules->overrides.size()}});
  } else {
    const auto count = [](size_t number, const char* what) {
      return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
    };
    std::printf("%s: a policy with %s and %s; %s approves changes\n", EscapeForTerminal(file).c_str(),
                count(rules->risk.size(), "rule").c_str(), count(rules->overrides.size(), "override").c_str(),
                EscapeForTerminal(rules->lock_owner).c_str());
  }
  return 0;
}

int Check(const Flags& flags) {
  if (flags.names.empty()) {
    Complain("policy check needs a FILE (see: caisson policy --help)");
    return kExitUsage;
  }
  const std::string& file = flags.names[0];
  const Result<std::string> text = policy::ReadPolicyFile(file);
  if (!text) return Fail(text.error());
  if (policy::IsRulesDocument(*text)) return CheckRules(flags, file, *text);
  Result<verify::Authority> authority = ReadAuthority(flags.shared);
  if (!authority) return Fail(authority.error());
  const Result<policy::Profile> profile =
      authority->profiles.FindOrLoad(file.find('/') == std::string::npos ? "./" + file : file);
  if (!profile) return Fail(profile.error());
  const std::vector<policy::Loss> losses = policy::FindLosses(*profile);
  const policy::RuntimeDescription& native = flags.native;
  bool refused = false;
  for (const policy::Loss& loss : losses) refused = refused || native.NeedsWall(loss.wall);
  if (flags.shared.json) {
    Print({{"file", file},
           {"kind", "profile"},
           {"name", profile->name},
           {"extends", profile->built_in},
           {"lost", ToJson(losses, native)},
           {"native_runs", !refused}});
    return refused ? kExitFailed : 0;
  }
  std::printf("%s: the profile %s, on %s\n", EscapeForTerminal(file).c_str(), profile->name.c_str(),
              profile->built_in.c_str());
  for (const policy::Loss& loss : losses) {
    std::printf("  lost  %-28s %s%s\n", EscapeForTerminal(loss.wall).c_str(), EscapeForTerminal(loss.what).c_str(),
                native.NeedsWall(loss.wall) ? " -- the native runtime refuses this" : "");
  }
  if (losses.empty()) std::printf("  nothing of %s is lost\n", profile->built_in.c_str());
  return refused ? kExitFailed : 0;
}

int Explain(const Flags& flags) {
  const int asked = !flags.path.empty() + !flags.host.empty() + !flags.syscall.empty();
  if (asked != 1) {
    Complain("policy explain takes one of --path, --host and --syscall");
    return kExitUsage;
  }
  policy::Grants grants;
  Result<policy::RunPlan> plan = Effective(flags, flags.shared.profile, &grants);
  if (!plan) return Fail(plan.error());
  const policy::Profile& profile = plan->profile;
  Result<policy::Explanation> explained = [&]() -> Result<policy::Explanation> {
    if (!flags.host.empty()) return policy::ExplainHost(profile, flags.host);
    if (!flags.syscall.empty()) return policy::ExplainSyscall(profile, flags.syscall);
    CAISSON_TRY(const policy::Access access, ReadAccess(flags.access));
    return policy::ExplainPath(profile, flags.path, access, grants);
  }();
  if (!explained) return Fail(explained.error(), kExitUsage);
  if (flags.shared.json) {
    Print({{"profile", profile.name},
           {"allowed", explained->allowed},
           {"what", explained->what},
           {"rule", explained->rule}});
  } else {
    std::printf("%s\n  rule: %s\n", EscapeForTerminal(explained->what).c_str(),
                EscapeForTerminal(explained->rule).c_str());
  }
  return 0;
}

int Diff(const Flags& flags) {
  if (flags.names.size() != 2) {
    Complain("policy diff takes two profiles");
    return kExitUsage;
  }
  Result<policy::RunPlan> left = Effective(flags, flags.names[0]), right = Effective(flags, flags.names[1]);
  if (!left) return Fail(left.error());
  if (!right) return Fail(right.error());
  const auto differences = policy::Compare(policy::ToJson(left->profile), policy::ToJson(right->profile));
  if (flags.shared.json) {
    ordered_json list = ordered_json::array();
    for (const policy::Difference& one : differences)
      list.push_back({{"key", one.path}, {"left", one.left}, {"right", one.right}});
    Print(list);
  } else {
    for (const policy::Difference& one : differences) {
      std::printf("%s\n  - %s\n  + %s\n", EscapeForTerminal(one.path).c_str(), EscapeForTerminal(one.left).c_str(),
                  EscapeForTerminal(one.right).c_str());
    }
  }
  return 0;
}

int Render(const Flags& flags) {
  Result<policy::RunPlan> plan = Effective(flags, flags.names.empty() ? flags.shared.profile : flags.names[0]);
  if (!plan) return Fail(plan.error());
  plan->profile.limits = plan->limits;
  const Result<std::string> text = policy::Render(flags.format, plan->profile);
  if (!text) return Fail(text.error(), kExitUsage);
  std::fputs(text->c_str(), stdout);
  return 0;
}

struct Command {
  const char* name;
  int (*run)(const Flags&);
};
constexpr Command kCommands[] = {{"list", List},       {"show", Show}, {"check", Check},
                                 {"explain", Explain}, {"diff", Diff}, {"render", Render}};

}  // namespace

int PolicyCommand(std::vector<std::string> arguments, const runtime::Runtimes& runtimes) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    std::fputs(kHelp, stdout);
    return arguments.empty() ? kExitUsage : 0;
  }
  const std::string name = arguments[0];
  arguments.erase(arguments.begin());
  Flags flags;
  flags.native = runtimes.front()->Describe();
  CLI::App app("Read, check, explain, compare and render the isolation spec.", "policy");
  app.set_help_flag("--help,-h", "Show this help");
  app.add_option("--profile", flags.shared.profile);
  app.add_option("--profiles", flags.shared.profiles);
  app.add_option("--policy", flags.shared.policy);
  app.add_option("--role", flags.shared.role);
  app.add_option("--path", flags.path);
  app.add_option("--access", flags.access);
  app.add_option("--host", flags.host);
  app.add_option("--syscall", flags.syscall);
  app.add_option("--format", flags.format);
  app.add_flag("--json", flags.shared.json);
  app.add_option("NAMES", flags.names);
  if (const auto exit_code = Parse(app, std::move(arguments), kExitUsage)) return *exit_code;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(flags);
  }
  Complain("policy: there is no command " + Quoted(name) + " (see: caisson policy --help)");
  return kExitUsage;
}

}  // namespace caisson::cli
