#include "verify/admission.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "policy/profile_json.h"

namespace caisson::verify {
namespace {

using policy::RunPlan;

RunPlan PlanOf(const std::string& profile) {
  RunPlan plan;
  plan.profile = *policy::FindBuiltIn(profile);
  plan.limits = plan.profile.limits;
  plan.workspace_access = plan.profile.workspace;
  return plan;
}

struct Change {
  const char* what;
  std::function<void(RunPlan&)> make;
};

template <typename Member, typename Value>
Change Set(const char* what, Member member, Value value) {
  return {what, [member, value](RunPlan& plan) { plan.profile.*member = value; }};
}

// Each entry changes one property that a run must keep.
std::vector<Change> Changes() {
  using policy::Profile;
  std::vector<Change> changes = {
      Set("strength", &Profile::strength, policy::Strength::kMicroVm),
      Set("landlock", &Profile::landlock, false),
      Set("no_new_privileges", &Profile::no_new_privileges, false),
      Set("on_violation", &Profile::on_violation, policy::OnViolation::kReport),
      Set("project", &Profile::project, policy::ProjectPaths{"/srv", {}, {}}),
      Set("project.allowed", &Profile::project, policy::ProjectPaths{"/srv", {{"a", policy::Access::kReadOnly}}, {}}),
      Set("project.access", &Profile::project, policy::ProjectPaths{"/srv", {{"a", policy::Access::kReadWrite}}, {}}),
      Set("project.denied", &Profile::project, policy::ProjectPaths{"/srv", {}, {"a"}}),
      {"seccomp.filter", [](RunPlan& plan) { plan.profile.seccomp.filter = "strict"; }},
      {"seccomp.allow", [](RunPlan& plan) { plan.profile.seccomp.allow = {"bpf"}; }},
      {"seccomp.deny", [](RunPlan& plan) { plan.profile.seccomp.deny = {"bpf"}; }},
      {"proc.subset", [](RunPlan& plan) { plan.profile.proc.pids_only = true; }},
      {"proc.masked_files", [](RunPlan& plan) { plan.profile.proc.masked_files.pop_back(); }},
      {"proc.masked_directories", [](RunPlan& plan) { plan.profile.proc.masked_directories.pop_back(); }},
      {"start", [](RunPlan& plan) { plan.profile.start = policy::Start::kCold; }},
      {"network.mode", [](RunPlan& plan) { plan.profile.network.mode = policy::NetworkMode::kAllowlist; }},
      {"network.allow", [](RunPlan& plan) { plan.profile.network.allow = {"example.org"}; }},
      {"network.deny", [](RunPlan& plan) { plan.profile.network.deny = {"example.org"}; }},
      {"network.pool", [](RunPlan& plan) { plan.profile.network.pool = "100.100.0.0/16"; }},
      {"network.host_ports", [](RunPlan& plan) { plan.profile.network.host_ports = {5432}; }},
      {"network.credentials", [](RunPlan& plan) { plan.profile.network.credentials = {"github"}; }},
      {"network.ask", [](RunPlan& plan) { plan.profile.network.ask = true; }},
      {"network.limits.bytes", [](RunPlan& plan) { plan.profile.network.limits.bytes = 1; }},
      {"approvals.network", [](RunPlan& plan) { plan.profile.approvals.kinds[0] = policy::Escalation::kAsk; }},
      {"approvals.wait_ms", [](RunPlan& plan) { plan.profile.approvals.wait_ms = 1; }},
      {"network.private_ranges", [](RunPlan& plan) { plan.profile.network.private_ranges = {"10.0.0.0/8"}; }},
      {"network.hosts",
       [](RunPlan& plan) {
         plan.profile.network.hosts = {{"a.example", "192.0.2.1"}};
       }},
      {"environment, one more", [](RunPlan& plan) { plan.profile.environment.emplace_back("A", ""); }},
      {"environment, one less", [](RunPlan& plan) { plan.profile.environment.pop_back(); }},
      {"environment, another value", [](RunPlan& plan) { plan.profile.environment[0].second += ":/opt"; }},
      {"workspace", [](RunPlan& plan) { plan.workspace_access = policy::Access::kCopyOnWrite; }},
      {"workspace mounted",
       [](RunPlan& plan) {
         plan.workspace_mount = policy::PlannedMount{{}, "/workspace", policy::Access::kReadWrite};
       }},
  };
  for (size_t i = 0; i < policy::kNamespaceNames.size(); ++i) {
    changes.push_back({policy::kNamespaceNames[i], [i](RunPlan& plan) {
                         plan.profile.namespaces = static_cast<uint8_t>(plan.profile.namespaces & ~(1U << i));
                       }});
  }
  for (const policy::LimitField& field : policy::kLimitFields)
    changes.push_back({field.name, [&field](RunPlan& plan) { ++(plan.limits.*field.value); }});
  const std::pair<const char*, std::vector<std::string> Profile::*> lists[] = {
      {"system_paths", &Profile::system_paths},
      {"etc_paths", &Profile::etc_paths},
      {"devices", &Profile::devices},
      {"writable_paths", &Profile::writable_paths},
      {"capabilities", &Profile::capabilities},
      {"ignored_writes", &Profile::ignored_writes},
      {"allow_degraded", &Profile::allow_degraded},
  };
  for (const auto& [name, list] : lists)
    changes.push_back({name, [list = list](RunPlan& plan) { (plan.profile.*list).emplace_back("more"); }});
  changes.push_back({"probes", [](RunPlan& plan) { plan.profile.probes.push_back({"", "/var/lib/mine", "x"}); }});
  for (const auto& [target, access] :
       {std::pair{"/a", policy::Access::kReadOnly}, std::pair{"/b", policy::Access::kReadOnly},
        std::pair{"/a", policy::Access::kReadWrite}}) {
    changes.push_back({"mounts", [target = target, access = access](RunPlan& plan) {
                         plan.mounts.push_back({{UniqueFd(), "/srv", true}, target, access});
                       }});
  }
  changes.push_back({"mounts", [](RunPlan& plan) {
                       plan.mounts.push_back({{UniqueFd(), "/opt", true}, "/a", policy::Access::kReadOnly});
                     }});
  return changes;
}

TEST(PolicyDigestTest, ChangesWithEverythingThatIsEnforced) {
  const RunPlan plain = PlanOf("balanced");
  std::set<std::string> digests = {PolicyDigest(plain)}, keys;
  for (const Change& change : Changes()) {
    RunPlan plan = PlanOf("balanced");
    change.make(plan);
    EXPECT_TRUE(digests.insert(PolicyDigest(plan)).second) << change.what;
    for (const policy::Difference& one : policy::Compare(DescribePolicy(plain), DescribePolicy(plan)))
      keys.insert(one.path.substr(0, one.path.find('.')));
  }
  // For a key that no change above covers, the test would not show that the digest covers it.
  const nlohmann::ordered_json document = DescribePolicy(plain);
  for (const auto& item : document.items()) {
    const bool label = item.key() == "version" || item.key() == "name" || item.key() == "description";
    EXPECT_EQ(keys.count(item.key()), label ? 0u : 1u) << item.key();
  }
}

TEST(PolicyDigestTest, DoesNotChangeWithWhatIsNot) {
  const std::string digest = PolicyDigest(PlanOf("balanced"));
  const Change changes[] = {
      {"name", [](RunPlan& plan) { plan.profile.name = "mine"; }},
      {"root", [](RunPlan& plan) { plan.profile.built_in = "strict"; }},
      {"description", [](RunPlan& plan) { plan.profile.description = "another"; }},
      {"order of paths", [](RunPlan& plan) { std::swap(plan.profile.system_paths[0], plan.profile.system_paths[1]); }},
      {"order of masks",
       [](RunPlan& plan) { std::swap(plan.profile.proc.masked_files[0], plan.profile.proc.masked_files[1]); }},
      {"order of variables",
       [](RunPlan& plan) { std::swap(plan.profile.environment[0], plan.profile.environment[1]); }},
      {"source",
       [](RunPlan& plan) {
         plan.workspace_files.push_back({"a.py", "", 0644, policy::FileKind::kRegular});
       }},
      {"commands", [](RunPlan& plan) { plan.commands.emplace_back(); }},
      {"decision", [](RunPlan& plan) { plan.decision.role = "another"; }},
      {"limits of the profile alone", [](RunPlan& plan) { ++plan.profile.limits.processes; }},
  };
  for (const Change& change : changes) {
    RunPlan plan = PlanOf("balanced");
    change.make(plan);
    EXPECT_EQ(PolicyDigest(plan), digest) << change.what;
  }
  std::set<std::string> digests;
  for (const policy::Profile& profile : policy::BuiltInProfiles())
    EXPECT_TRUE(digests.insert(PolicyDigest(PlanOf(profile.name))).second) << profile.name;
}

TEST(PolicyDigestTest, CannotBeMovedFromOneKeyToAnother) {
  RunPlan left = PlanOf("balanced"), right = PlanOf("balanced");
  left.profile.seccomp.allow = {"bpf"};
  right.profile.seccomp.deny = {"bpf"};
  EXPECT_NE(PolicyDigest(left), PolicyDigest(right));
  left = PlanOf("balanced");
  right = PlanOf("balanced");
  left.profile.environment = {{"A", "1\",\"B\":\"2"}};
  right.profile.environment = {{"A", "1"}, {"B", "2"}};
  EXPECT_NE(PolicyDigest(left), PolicyDigest(right));
}

Authority WithRuntime() {
  Authority authority;
  authority.runtimes.emplace_back();
  authority.runtimes[0].name = "native";
  authority.runtimes[0].abilities = {policy::kObservations.begin(), policy::kObservations.end()};
  authority.runtimes[0].limits.fill(policy::LimitSupport::kEnforced);
  return authority;
}

policy::Override Granting(policy::Grant grant) {
  policy::Override one;
  one.id = "o";
  one.role = "builder";
  one.grant = std::move(grant);
  one.expires_at = INT64_MAX;
  return one;
}

TEST(AdmissionTest, RequestsOnlyTighten) {
  Authority authority;
  Result<Admission> admission = Admission::Open(authority, "balanced", "");
  ASSERT_TRUE(admission) << admission.error().message;
  RequestedLimits limits;
  limits.processes = 10;
  EXPECT_TRUE(admission->Tighten(limits));
  EXPECT_EQ(admission->plan().limits.processes, 10);
  limits.processes = 11;  // above its tightened value
  EXPECT_EQ(admission->Tighten(limits).error().kind, ErrorKind::kDenied);
}

TEST(AdmissionTest, AnOverrideRaisesAndNeedsApproval) {
  Authority authority = WithRuntime();
  authority.role = "builder";
  authority.rules.overrides = {Granting(policy::RaiseLimit{&policy::kLimitFields[4], 1000})};
  RequestedLimits limits;
  limits.processes = 1000;
  const auto judge = [&] {
    Result<Admission> admission = Admission::Open(authority, "balanced", "");
    EXPECT_TRUE(admission->Tighten(limits));
    return admission->Close({}, false);
  };
  EXPECT_NE(judge().error().message.find("--approve overrides"), std::string::npos);
  authority.approved_rules = {"overrides"};
  EXPECT_TRUE(judge());
}

TEST(AdmissionTest, TheCommandLineIsTrustedOnlyWhereRulesSaySo) {
  Authority authority = WithRuntime();
  authority.limits.processes = 1000;
  Result<Admission> trusted = Admission::Open(authority, "balanced", "");
  ASSERT_TRUE(trusted) << trusted.error().message;
  EXPECT_EQ(trusted->plan().limits.processes, 1000);
  EXPECT_TRUE(trusted->Close({}, true));
  authority.rules.command_line_trusted = false;
  EXPECT_EQ(Admission::Open(authority, "balanced", "").error().kind, ErrorKind::kDenied);
  authority.limits.processes = 5;
  EXPECT_TRUE(Admission::Open(authority, "balanced", ""));
}

TEST(AdmissionTest, WhatIsAskedForMustBeSomethingARuntimeCan) {
  const Authority authority = WithRuntime();
  const Result<Request> request = ParseRequest(
      R"({"source": {"files": {"a.py": ""}}, "network": {"mode": "allowlist", "allow": ["example.org"]}})");
  ASSERT_TRUE(request) << request.error().message;
  Authority granted = authority;
  granted.role = "builder";
  granted.rules.overrides = {Granting(policy::AllowNetwork{"example.org"})};
  const Result<Admitted> refused = Admit(*request, granted);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("lacks the ability egress"), std::string::npos) << refused.error().message;
}

TEST(AdmissionTest, AGrantedCallReplacesADenial) {
  Authority authority = WithRuntime();
  authority.role = "builder";
  authority.rules.overrides = {Granting(policy::AllowSyscall{"bpf"})};
  Result<Admission> admission = Admission::Open(authority, "balanced", "");
  ASSERT_TRUE(admission);
  EXPECT_EQ(admission->plan().profile.seccomp.allow, std::vector<std::string>{"bpf"});
  authority.role = "other";
  EXPECT_TRUE(Admission::Open(authority, "balanced", "")->plan().profile.seccomp.allow.empty());
}

}  // namespace
}  // namespace caisson::verify
