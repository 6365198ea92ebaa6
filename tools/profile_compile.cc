// Turns profiles/*.yaml into C++ source, when the project is built, so that no YAML is read to start with a built-in
// profile; and embeds the texts of the filters, so that they can be shown and rendered:
//   profile_compile OUT.cc PROFILE.yaml… FILTER.json…
// With --baseline, the part of one profile that a sandbox can be built with before its request:
//   profile_compile --baseline OUT.cc PROFILE.yaml
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "policy/destinations.h"
#include "policy/profile_reader.h"
#include "policy/rules.h"

namespace caisson::policy {

// The generated file will define it; at this point there is no built-in profile yet.
const Rules& BuiltInRules() {
  static const Rules none;
  return none;
}
const std::vector<Profile>& BuiltInProfiles() {
  static const std::vector<Profile> none;
  return none;
}
const std::vector<DestinationClass>& BuiltInDestinations() {
  static const std::vector<DestinationClass> none;
  return none;
}

namespace {

struct Failure {
  std::string what;
};

std::string ReadWhole(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream || text.empty()) throw Failure{path + ": cannot be read"};
  return text;
}

bool IsRules(const std::string& file) { return std::filesystem::path(file).filename() == "policy.yaml"; }
bool IsDestinations(const std::string& file) { return std::filesystem::path(file).filename() == "destinations.yaml"; }

template <typename T>
T Take(Result<T> result) {
  if (!result) throw Failure{result.error().message};
  return *std::move(result);
}

// A C++ literal. Profile texts are UTF-8 without control characters that matter here.
std::string Literal(const std::string& text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    literal += c;
  }
  return literal + "\"";
}

std::string Literal(const std::vector<std::string>& list) {
  std::string literal = "{";
  for (const std::string& text : list) literal += (literal.size() == 1 ? "" : ", ") + Literal(text);
  return literal + "}";
}

std::string Literal(bool value) { return value ? "true" : "false"; }

void WriteProfile(std::ostream& out, const Profile& profile) {
  if (!profile.mounts.empty() || profile.project || !profile.network.allow.empty())
    throw Failure{profile.name + ": a built-in profile may not name paths or hosts of a machine"};
  out << "  {\n    Profile& p = profiles.emplace_back();\n";
  const auto set = [&](const char* member, const std::string& value) {
    out << "    p." << member << " = " << value << ";\n";
  };
  set("name", Literal(profile.name));
  set("built_in", Literal(profile.name));
  set("description", Literal(profile.description));
  set("strength", "static_cast<Strength>(" + std::to_string(static_cast<int>(profile.strength)) + ")");
  set("namespaces", std::to_string(profile.namespaces));
  set("system_paths", Literal(profile.system_paths));
  set("etc_paths", Literal(profile.etc_paths));
  set("devices", Literal(profile.devices));
  set("proc.pids_only", Literal(profile.proc.pids_only));
  set("proc.masked_files", Literal(profile.proc.masked_files));
  set("proc.masked_directories", Literal(profile.proc.masked_directories));
  set("workspace", "static_cast<Access>(" + std::to_string(static_cast<int>(profile.workspace)) + ")");
  set("writable_paths", Literal(profile.writable_paths));
  set("seccomp.filter", Literal(profile.seccomp.filter));
  set("seccomp.allow", Literal(profile.seccomp.allow));
  set("seccomp.deny", Literal(profile.seccomp.deny));
  set("landlock", Literal(profile.landlock));
  set("capabilities", Literal(profile.capabilities));
  set("no_new_privileges", Literal(profile.no_new_privileges));
  for (const LimitField& field : kLimitFields) {
    if (profile.limits.*field.value == 0 && !field.optional)
      throw Failure{profile.name + ": limits." + field.name + " is missing"};
  }
  const Limits& limits = profile.limits;
  std::ostringstream numbers;
  numbers << "{" << limits.command_timeout_ms << ", " << limits.budget_ms << ", " << limits.cpu_millis << ", "
          << limits.memory_bytes << ", " << limits.processes << ", " << limits.output_bytes << ", "
          << limits.scratch_bytes << ", " << limits.scratch_inodes << ", " << limits.cpu_time_ms << ", "
          << limits.stack_bytes << "}";
  set("limits", numbers.str());
  set("network.mode", "static_cast<NetworkMode>(" + std::to_string(static_cast<int>(profile.network.mode)) + ")");
  for (size_t kind = 0; kind < kEscalationKindNames.size(); ++kind)
    set(("approvals.kinds[" + std::to_string(kind) + "]").c_str(),
        "static_cast<Escalation>(" + std::to_string(static_cast<int>(profile.approvals.kinds[kind])) + ")");
  set("approvals.wait_ms", std::to_string(profile.approvals.wait_ms));
  out << "    p.environment = {";
  for (const auto& [name, value] : profile.environment) out << "{" << Literal(name) << ", " << Literal(value) << "}, ";
  out << "};\n";
  set("ignored_writes", Literal(profile.ignored_writes));
  out << "    p.probes = {";
  for (const ProbeRule& probe : profile.probes)
    out << "{" << Literal(probe.reason) << ", " << Literal(probe.write) << ", " << Literal(probe.why) << "}, ";
  out << "};\n";
  set("on_violation", "static_cast<OnViolation>(" + std::to_string(static_cast<int>(profile.on_violation)) + ")");
  set("start", "static_cast<Start>(" + std::to_string(static_cast<int>(profile.start)) + ")");
  set("allow_degraded", Literal(profile.allow_degraded));
  out << "  }\n";
}

std::string Enumerators(const char* type, const std::vector<Ask>& values) {
  std::string literal = "{";
  for (const Ask value : values)
    literal += std::string("static_cast<") + type + ">(" + std::to_string(static_cast<int>(value)) + "), ";
  return literal + "}";
}

void WriteRules(std::ostream& out, const Rules& rules) {
  if (!rules.overrides.empty()) throw Failure{"the built-in rules may not grant overrides"};
  out << "Rules MakeRules() {\n  Rules rules;\n  rules.name = " << Literal(rules.name)
      << ";\n  rules.lock_owner = " << Literal(rules.lock_owner)
      << ";\n  rules.command_line_trusted = " << Literal(rules.command_line_trusted) << ";\n";
  for (size_t i = 0; i < rules.strength_reasons.size(); ++i)
    out << "  rules.strength_reasons[" << i << "] = " << Literal(rules.strength_reasons[i]) << ";\n";
  for (const RiskRule& rule : rules.risk) {
    out << "  {\n    RiskRule& r = rules.risk.emplace_back();\n    r.id = " << Literal(rule.id)
        << ";\n    r.sources = " << Literal(rule.sources) << ";\n    r.languages = " << Literal(rule.languages)
        << ";\n    r.asks = " << Enumerators("Ask", rule.asks) << ";\n    r.labels = {";
    for (const auto& [name, value] : rule.labels) out << "{" << Literal(name) << ", " << Literal(value) << "}, ";
    out << "};\n    r.strength = static_cast<Strength>(" << static_cast<int>(rule.strength)
        << ");\n    r.approval = " << Literal(rule.approval) << ";\n    r.why = " << Literal(rule.why) << ";\n  }\n";
  }
  out << "  return rules;\n}\n\n";
}

void WriteDestinations(std::ostream& out, const std::vector<DestinationClass>& classes) {
  out << "std::vector<DestinationClass> MakeDestinations() {\n  std::vector<DestinationClass> classes;\n";
  for (const DestinationClass& one : classes) {
    out << "  classes.push_back({" << Literal(one.name) << ", " << Literal(one.description) << ", "
        << Literal(one.allow) << "});\n";
  }
  out << "  return classes;\n}\n\n";
}

// The same walls as a sandbox::Spec, for sandboxes that are built before their request is known.
void WriteBaseline(std::ostream& out, const Profile& profile) {
  const auto has = [&](const char* path) {
    return std::find(profile.writable_paths.begin(), profile.writable_paths.end(), path) !=
           profile.writable_paths.end();
  };
  out << "// Written by profile_compile; do not edit.\n#include \"launcher/baseline_spec.h\"\n\nnamespace "
         "caisson::launcher "
         "{\n\nsandbox::Spec BaselineSpec() {\n  sandbox::Spec s;\n";
  const auto set = [&](const char* member, const std::string& value) {
    out << "  s." << member << " = " << value << ";\n";
  };
  set("system_paths", Literal(profile.system_paths));
  set("etc_paths", Literal(profile.etc_paths));
  set("devices", Literal(profile.devices));
  set("writable_tmp", Literal(has("/tmp")));
  set("writable_shm", Literal(has("/dev/shm")));
  set("masked_files", Literal(profile.proc.masked_files));
  set("masked_directories", Literal(profile.proc.masked_directories));
  set("proc_pids_only", Literal(profile.proc.pids_only));
  set("limits.cpu_millis", std::to_string(profile.limits.cpu_millis));
  set("limits.scratch_bytes", std::to_string(profile.limits.scratch_bytes));
  set("limits.scratch_inodes", std::to_string(profile.limits.scratch_inodes));
  out << "  return s;\n}\n\n}  // namespace caisson::launcher\n";
}

void Save(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream) throw Failure{path + ": cannot be written"};
}

void CompileBaseline(const std::string& output, const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  std::ostringstream out;
  WriteBaseline(out, Take(ReadProfile(Take(ReadYaml(ReadWhole(file), name)), name, Profile())));
  Save(output, out.str());
}

void Compile(const std::string& output, const std::vector<std::string>& files) {
  std::map<std::string, Profile> profiles;  // parents come before their children on the command line
  std::ostringstream out;
  out << "// Written by profile_compile; do not edit.\n#include \"policy/destinations.h\"\n#include "
         "\"policy/filter_source.h\"\n#include "
         "\"policy/profile.h\"\n#include \"policy/rules.h\"\n"
         "\nnamespace caisson::policy {\n\nnamespace {\n\nstd::vector<Profile> Make() {\n"
         "  std::vector<Profile> profiles;\n";
  for (const std::string& file : files) {
    if (std::filesystem::path(file).extension() != ".yaml" || IsRules(file) || IsDestinations(file)) continue;
    const std::string name = std::filesystem::path(file).filename().string();
    const YamlNode document = Take(ReadYaml(ReadWhole(file), name));
    const ProfileHead head = Take(ReadProfileHead(document, name));
    if (head.name + ".yaml" != name) throw Failure{name + ": holds the profile " + head.name};
    if (!head.extends.empty() && profiles.find(head.extends) == profiles.end())
      throw Failure{name + ": extends " + head.extends + ", which is not listed before it"};
    profiles[head.name] = Take(ReadProfile(document, name, head.extends.empty() ? Profile() : profiles[head.extends]));
    WriteProfile(out, profiles[head.name]);
  }
  out << "  return profiles;\n}\n\n";
  for (const std::string& file : files) {
    if (IsRules(file)) WriteRules(out, Take(ReadRules(ReadWhole(file), "policy.yaml")));
    if (IsDestinations(file)) WriteDestinations(out, Take(ReadDestinations(ReadWhole(file), "destinations.yaml")));
  }
  out << "}  // namespace\n\nconst Rules& BuiltInRules() {\n  static const Rules rules = MakeRules();\n  return "
         "rules;\n}\n"
         "\nconst std::vector<DestinationClass>& BuiltInDestinations() {\n"
         "  static const std::vector<DestinationClass> classes = MakeDestinations();\n  return classes;\n}\n"
         "\nconst std::vector<Profile>& BuiltInProfiles() {\n"
         "  static const std::vector<Profile> profiles = Make();\n  return profiles;\n}\n\n"
         "std::string_view FilterText(std::string_view name) {\n";
  for (const std::string& file : files) {
    if (std::filesystem::path(file).extension() != ".json") continue;
    out << "  if (name == " << Literal(std::filesystem::path(file).stem().string()) << ") return R\"json("
        << ReadWhole(file) << ")json\";\n";
  }
  out << "  return {};\n}\n\n}  // namespace caisson::policy\n";
  Save(output, out.str());
}

}  // namespace
}  // namespace caisson::policy

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: profile_compile [--baseline] OUT.cc PROFILE.yaml... FILTER.json...\n");
    return 2;
  }
  try {
    if (std::string(argv[1]) == "--baseline" && argc == 4) {
      caisson::policy::CompileBaseline(argv[2], argv[3]);
    } else {
      caisson::policy::Compile(argv[1], {argv + 2, argv + argc});
    }
    return 0;
  } catch (const caisson::policy::Failure& failure) {
    std::fprintf(stderr, "profile_compile: %s\n", failure.what.c_str());
    return 1;
  }
}
