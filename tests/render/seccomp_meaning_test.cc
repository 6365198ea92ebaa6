// The rendered filter means what the ordered one of profiles/seccomp means: rule by rule, and again after libseccomp,
// which container engines use, has compiled it. The meaning is evaluated here from the source, sharing nothing with the
// renderer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "policy/filter_source.h"
#include "policy/profile.h"
#include "policy/render.h"
#include "support/bpf_evaluator.h"

namespace caisson::policy {
namespace {

using nlohmann::json;
using Arguments = std::array<uint64_t, 6>;

uint32_t Refusal(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

struct Rule {
  Arguments mask{}, value{};
  uint32_t answer = 0;
  bool rest = false;  // matches what no other rule of its call does

  bool Matches(const Arguments& arguments) const {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if ((arguments[i] & mask[i]) != value[i]) return false;
    }
    return true;
  }
};

// What a workload gets: the kernel's answer, or the supervisor's.
uint32_t AnswerOf(const json& rule) {
  const std::string action = rule["action"];
  if (action == "SCMP_ACT_ALLOW") return SECCOMP_RET_ALLOW;
  if (action == "SCMP_ACT_ERRNO") return Refusal(rule["errnoRet"]);
  if (action == "SCMP_ACT_KILL_PROCESS") return SECCOMP_RET_KILL_PROCESS;
  const json& then = rule["x-caisson"];
  if (then["do"] == "observe") return SECCOMP_RET_ALLOW;
  if (then["do"] == "kill") return SECCOMP_RET_KILL_PROCESS;
  return Refusal(then["errno"]);
}

using Rules = std::vector<Rule>;
const Rules kNone;

std::map<std::string, Rules> ByCall(const json& document) {
  std::map<std::string, Rules> calls;
  for (const json& source : document["syscalls"]) {
    Rule rule;
    rule.answer = AnswerOf(source);
    rule.rest = source.contains("x-caisson") && source["x-caisson"].value("except", false);
    for (const json& test : source.value("args", json::array())) {
      rule.mask[test["index"].get<size_t>()] = test["value"];
      rule.value[test["index"].get<size_t>()] = test["valueTwo"];
    }
    for (const json& name : source["names"]) calls[name].push_back(rule);
  }
  return calls;
}

uint32_t Meaning(const Rules& rules, const Arguments& arguments) {
  uint32_t rest = Refusal(ENOSYS);
  for (const Rule& rule : rules) {
    if (rule.rest)
      rest = rule.answer;
    else if (rule.Matches(arguments))
      return rule.answer;
  }
  return rest;
}

// Calls that meet a rule exactly, and their neighbours: each argument in turn takes every value any rule names, with
// each of its bits swapped.
std::vector<Arguments> Samples(const Rules& rules, std::mt19937_64& random) {
  std::vector<Arguments> points = {{}, {~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL}};
  std::array<std::set<uint64_t>, 6> values;
  for (const Rule& rule : rules) {
    points.push_back(rule.value);
    for (size_t i = 0; i < 6; ++i) {
      if (rule.mask[i] == 0) continue;
      values[i].insert(rule.value[i]);
      for (unsigned bit = 0; bit < 64; ++bit) values[i].insert(rule.value[i] ^ uint64_t{1} << bit);
    }
  }
  std::vector<Arguments> samples = points;
  for (const Arguments& point : points) {
    for (size_t i = 0; i < 6; ++i) {
      for (const uint64_t value : values[i]) {
        samples.push_back(point);
        samples.back()[i] = value;
      }
    }
  }
  for (int i = 0; i < 200; ++i) {
    Arguments point;
    for (uint64_t& value : point) value = random() >> random() % 64;
    samples.push_back(point);
  }
  return samples;
}

// As runc does it: each rule by itself, and what the library does not know yet is left to the default.
std::vector<sock_filter> Compile(const json& document) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(document["defaultErrnoRet"].get<uint16_t>()));
  EXPECT_EQ(document["architectures"], json::array({"SCMP_ARCH_X86_64"}));
  for (const json& rule : document["syscalls"]) {
    std::vector<scmp_arg_cmp> tests;
    if (rule.contains("args")) {
      for (const json& test : rule["args"]) {
        EXPECT_EQ(test["op"], "SCMP_CMP_MASKED_EQ");
        tests.push_back({test["index"], SCMP_CMP_MASKED_EQ, test["value"], test["valueTwo"]});
      }
    }
    const std::string action = rule["action"];
    const uint32_t number = action == "SCMP_ACT_ALLOW"   ? SCMP_ACT_ALLOW
                            : action == "SCMP_ACT_ERRNO" ? SCMP_ACT_ERRNO(rule["errnoRet"].get<uint16_t>())
                                                         : SCMP_ACT_KILL_PROCESS;
    for (const json& name : rule["names"]) {
      const int call = seccomp_syscall_resolve_name(name.get<std::string>().c_str());
      if (call == __NR_SCMP_ERROR || call < 0) continue;
      EXPECT_EQ(seccomp_rule_add_array(filter, number, call, static_cast<unsigned>(tests.size()), tests.data()), 0)
          << rule;
    }
  }
  const int fd = ::memfd_create("filter", MFD_CLOEXEC);
  EXPECT_EQ(seccomp_export_bpf(filter, fd), 0);
  std::vector<sock_filter> program(static_cast<size_t>(::lseek(fd, 0, SEEK_END)) / sizeof(sock_filter));
  const size_t size = program.size() * sizeof(sock_filter);
  EXPECT_EQ(::pread(fd, program.data(), size, 0), static_cast<ssize_t>(size));
  ::close(fd);
  seccomp_release(filter);
  return program;
}

class SeccompMeaning : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Profile profile = *FindBuiltIn(GetParam());
    Add(profile);
    profile.seccomp.allow = {"io_uring_setup"};
    profile.seccomp.deny = {"getrandom", "socket"};
    Add(profile);
  }
  void Add(const Profile& profile) {
    sources_.push_back(*FilterDocument(profile.seccomp));
    rendered_.push_back(json::parse(*render::Seccomp(profile)));
  }

  std::vector<json> sources_, rendered_;
};

TEST_P(SeccompMeaning, AtMostOneRuleMatchesAndItIsTheRightOne) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto wanted = ByCall(sources_[i]), got = ByCall(rendered_[i]);
    for (const auto& [name, rules] : wanted) {
      const auto found = got.find(name);
      for (const Arguments& arguments : Samples(rules, random)) {
        uint32_t answer = Refusal(ENOSYS);
        int matches = 0;
        for (const Rule& rule : found == got.end() ? kNone : found->second) {
          if (!rule.Matches(arguments)) continue;
          answer = rule.answer;
          ++matches;
        }
        ASSERT_LE(matches, 1) << name;
        ASSERT_EQ(answer, Meaning(rules, arguments)) << name << " " << json(arguments);
      }
    }
    for (const auto& [name, rules] : got) EXPECT_TRUE(wanted.contains(name)) << name;
  }
}

TEST_P(SeccompMeaning, LibseccompCompilesItToTheSame) {
  std::mt19937_64 random(2);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const std::vector<sock_filter> program = Compile(rendered_[i]);
    support::BpfEvaluator evaluator(program);
    ASSERT_EQ(evaluator.Validate(), "");  // and with that, short enough for the kernel
    const auto wanted = ByCall(sources_[i]);
    for (int number = 0; number < 512; ++number) {
      char* name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, number);
      const auto found = name == nullptr ? wanted.end() : wanted.find(name);
      ::free(name);
      const Rules& rules = found == wanted.end() ? kNone : found->second;
      for (const Arguments& arguments : Samples(rules, random)) {
        seccomp_data call{number, AUDIT_ARCH_X86_64, 0, {}};
        std::copy(arguments.begin(), arguments.end(), call.args);
        ASSERT_EQ(evaluator.Run(call), Meaning(rules, arguments)) << number << " " << json(arguments);
      }
    }
    for (const uint32_t architecture : {uint32_t{AUDIT_ARCH_I386}, uint32_t{AUDIT_ARCH_AARCH64}})
      EXPECT_EQ(evaluator.Run({39, architecture, 0, {}}), SECCOMP_RET_KILL_THREAD);
    EXPECT_EQ(evaluator.Run({0x40000000 + 39, AUDIT_ARCH_X86_64, 0, {}}), SECCOMP_RET_KILL_THREAD);
  }
}

TEST_P(SeccompMeaning, OnlyFieldsThatEnginesKnow) {
  for (const json& document : rendered_) {
    for (const auto& [key, value] : document.items()) {
      EXPECT_TRUE(key == "defaultAction" || key == "defaultErrnoRet" || key == "architectures" || key == "flags" ||
                  key == "syscalls")
          << key;
    }
    for (const json& rule : document["syscalls"]) {
      for (const auto& [key, value] : rule.items())
        EXPECT_TRUE(key == "names" || key == "action" || key == "errnoRet" || key == "args") << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, SeccompMeaning, testing::Values("balanced", "strict"),
                         [](const auto& profile) { return std::string(profile.param); });

}  // namespace
}  // namespace caisson::policy
