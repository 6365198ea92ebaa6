#include "sandbox/seccomp_program.h"

#include <linux/audit.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <cstring>

namespace caisson::sandbox {

// Written by tools/seccomp_compile.cc.
extern const SeccompProgram kSeccompBalanced;
extern const SeccompProgram kSeccompBalancedWatched;
extern const SeccompProgram kSeccompStrict;
extern const std::span<const char* const> kSyscallNames;

namespace {

constexpr uint32_t kX32Bit = 0x40000000;

int32_t RuleNumber(const seccomp_data& data) {
  // The filter lets -1 fall through to its default, which does not notify: whatever claims to be one is foreign too.
  const bool foreign = data.arch != AUDIT_ARCH_X86_64 || static_cast<uint32_t>(data.nr) >= kX32Bit;
  return foreign ? kForeignArchitecture : data.nr;
}

bool Matches(const NotifyRule& rule, const seccomp_data& data) {
  return std::all_of(rule.tests, rule.tests + rule.test_count,
                     [&data](const ArgumentTest& test) { return (data.args[test.index] & test.mask) == test.value; });
}

}  // namespace

const SeccompProgram* FindSeccompProgram(const char* name) {
  for (const SeccompProgram* program : {&kSeccompBalanced, &kSeccompBalancedWatched, &kSeccompStrict}) {
    if (std::strcmp(program->name, name) == 0) return program;
  }
  return nullptr;
}

const NotifyRule* FindNotifyRule(const SeccompProgram& program, const seccomp_data& data) {
  const int32_t number = RuleNumber(data);
  auto rule = std::lower_bound(program.rules.begin(), program.rules.end(), number,
                               [](const NotifyRule& candidate, int32_t wanted) { return candidate.number < wanted; });
  for (; rule != program.rules.end() && rule->number == number; ++rule) {
    if (Matches(*rule, data)) return &*rule;
  }
  return nullptr;
}

const char* SyscallName(int32_t number) {
  if (number < 0 || static_cast<size_t>(number) >= kSyscallNames.size()) return nullptr;
  return kSyscallNames[static_cast<size_t>(number)];
}

}  // namespace caisson::sandbox
