#include "sandbox/seccomp_program.h"

#include <linux/audit.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "sandbox/mutation.h"

namespace caisson::sandbox {

// Written by tools/seccomp_compile.cc.
extern const SeccompProgram kSeccompBalanced;
extern const SeccompProgram kSeccompBalancedWatched;
extern const SeccompProgram kSeccompSession;
extern const SeccompProgram kSeccompSessionWatched;
extern const SeccompProgram kSeccompStrict;
#ifdef CAISSON_MUTATIONS
extern const SeccompProgram kSeccompBalancedUnmasked;
#endif

namespace {

constexpr uint32_t kX32Bit = 0x40000000;

int32_t RuleNumber(const seccomp_data& data) {
  // The filter lets -1 fall through to its default, which does not notify, so a notification for -1 counts as foreign
  // too.
  const bool foreign = data.arch != AUDIT_ARCH_X86_64 || static_cast<uint32_t>(data.nr) >= kX32Bit;
  return foreign ? kForeignArchitecture : data.nr;
}

bool Matches(const NotifyRule& rule, const seccomp_data& data) {
  return std::all_of(rule.tests, rule.tests + rule.test_count,
                     [&data](const ArgumentTest& test) { return (data.args[test.index] & test.mask) == test.value; });
}

}  // namespace

ExtendedProgram::ExtendedProgram(const SeccompProgram& base, std::span<const int32_t> allowed,
                                 std::span<const int32_t> denied)
    : program_(base) {
  // Jumps span at most 255 instructions, so each call has its own return.
  const size_t decided = 2 * (allowed.size() + denied.size());
  const auto load = [this](size_t offset) {
    filter_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  };
  load(offsetof(seccomp_data, arch));
  filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
  // Jumps over the load of the number and all decided calls: only the base program judges a foreign call.
  filter_.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<uint32_t>(1 + decided)));
  load(offsetof(seccomp_data, nr));
  const auto decide = [this](std::span<const int32_t> numbers, uint32_t action) {
    for (const int32_t number : numbers) {
      filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
      filter_.push_back(BPF_STMT(BPF_RET | BPF_K, action));
    }
  };
  decide(denied, SECCOMP_RET_USER_NOTIF);
  decide(allowed, SECCOMP_RET_ALLOW);
  filter_.insert(filter_.end(), base.filter.begin(), base.filter.end());

  for (const int32_t number : denied) {
    rules_.push_back({number, Disposition::kDeny, EPERM, ViolationClass::kSyscall, "syscall.profile", 0, {}});
  }
  rules_.insert(rules_.end(), base.rules.begin(), base.rules.end());
  // Stable: our rules stay in front of the base's rules for the same number.
  std::stable_sort(rules_.begin(), rules_.end(),
                   [](const NotifyRule& a, const NotifyRule& b) { return a.number < b.number; });
  program_.filter = filter_;
  program_.rules = rules_;
}

const SeccompProgram* FindSeccompProgram(const char* name) {
#ifdef CAISSON_MUTATIONS
  if (CAISSON_LEFT_OUT("masked_compare") && std::strcmp(name, "balanced") == 0) return &kSeccompBalancedUnmasked;
#endif
  for (const SeccompProgram* program :
       {&kSeccompBalanced, &kSeccompBalancedWatched, &kSeccompSession, &kSeccompSessionWatched, &kSeccompStrict}) {
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

uint32_t RunFilter(const SeccompProgram& program, const seccomp_data& data) {
  uint32_t accumulator = 0;
  // Every instruction moves forward, so this ends. The instructions are those that tools/seccomp_compile.cc writes.
  for (size_t next = 0; next < program.filter.size();) {
    const sock_filter& instruction = program.filter[next++];
    bool holds = false;
    switch (instruction.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (instruction.k > sizeof(data) - sizeof(accumulator)) return SECCOMP_RET_KILL_PROCESS;
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + instruction.k, sizeof(accumulator));
        continue;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= instruction.k;
        continue;
      case BPF_RET | BPF_K:
        return instruction.k;
      case BPF_JMP | BPF_JA:
        next += instruction.k;
        continue;
      case BPF_JMP | BPF_JEQ | BPF_K:
        holds = accumulator == instruction.k;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        holds = accumulator > instruction.k;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        holds = accumulator >= instruction.k;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        holds = (accumulator & instruction.k) != 0;
        break;
      default:
        return SECCOMP_RET_KILL_PROCESS;
    }
    next += holds ? instruction.jt : instruction.jf;
  }
  return SECCOMP_RET_KILL_PROCESS;
}

}  // namespace caisson::sandbox
