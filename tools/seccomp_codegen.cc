// libseccomp does not do this because it cannot express "everything the other rules did not match". Given a NOTIFY rule
// with an argument and an ALLOW rule without one, it silently drops the first, and its argument chains do not return to
// a sibling after a first comparison matched. Here the rules of a call are a plain list, tried in order, and
// seccomp_program_test compares the result with the meaning of the JSON.
#include "seccomp_codegen.h"

#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstring>
#include <optional>

namespace caisson::tools {
namespace {

using Code = std::vector<sock_filter>;

constexpr uint32_t kX32Bit = 0x40000000;
constexpr uint32_t kMask32 = 0xffffffff;
constexpr size_t kMaxShortJump = 255;

sock_filter Statement(unsigned code, uint32_t k) { return BPF_STMT(static_cast<uint16_t>(code), k); }

sock_filter Jump(unsigned code, uint32_t k, size_t if_true, size_t if_false) {
  if (if_true > kMaxShortJump || if_false > kMaxShortJump) throw PolicyError("a rule needs too long a jump");
  return BPF_JUMP(static_cast<uint16_t>(code), k, static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false));
}

sock_filter Load(size_t offset) { return Statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter Return(uint32_t action) { return Statement(BPF_RET | BPF_K, action); }

// One 32-bit half of an argument test.
struct HalfTest {
  size_t offset;  // in seccomp_data
  uint32_t mask;
  uint32_t value;
};

std::vector<HalfTest> SplitTests(const std::vector<PolicyTest>& tests) {
  std::vector<HalfTest> halves;
  for (const PolicyTest& test : tests) {
    const size_t low = offsetof(seccomp_data, args) + test.index * sizeof(uint64_t);  // little-endian
    const auto add = [&halves](size_t offset, uint64_t mask, uint64_t value) {
      if (mask != 0) halves.push_back({offset, static_cast<uint32_t>(mask), static_cast<uint32_t>(value)});
    };
    add(low, test.mask & kMask32, test.value & kMask32);
    add(low + sizeof(uint32_t), test.mask >> 32, test.value >> 32);
  }
  return halves;
}

// What the accumulator holds: a word of seccomp_data, with a mask applied.
struct Accumulator {
  size_t offset;
  uint32_t mask;
};

// A jump to the next rule, whose distance is not known yet.
struct PendingJump {
  size_t at;
  bool fails_when_true;
};

// Appends the instructions of one test; the last is the jump to take when it fails.
PendingJump AppendTest(Code& code, const HalfTest& test, std::optional<Accumulator>& accumulator) {
  // BPF_JSET tests bits without changing the accumulator; otherwise the mask must be applied first.
  const bool none_set = test.value == 0 && test.mask != kMask32;
  const bool one_set = test.value == test.mask && (test.mask & (test.mask - 1)) == 0;
  const uint32_t apply = none_set || one_set ? kMask32 : test.mask;
  if (!accumulator || accumulator->offset != test.offset || accumulator->mask != apply) {
    if (!accumulator || accumulator->offset != test.offset || accumulator->mask != kMask32) {
      code.push_back(Load(test.offset));
    }
    if (apply != kMask32) code.push_back(Statement(BPF_ALU | BPF_AND | BPF_K, apply));
    accumulator = Accumulator{test.offset, apply};
  }
  const unsigned comparison = none_set || one_set ? BPF_JSET : BPF_JEQ;
  code.push_back(Jump(BPF_JMP | comparison | BPF_K, comparison == BPF_JSET ? test.mask : test.value, 0, 0));
  return {code.size() - 1, none_set};
}

// The rules of one call: each is its tests and a return; a test that fails jumps behind that return, to the next rule.
Code GenerateRules(const std::vector<PolicyRule>& rules, uint32_t default_action) {
  Code code;
  std::optional<Accumulator> accumulator;
  for (const PolicyRule& rule : rules) {
    std::vector<PendingJump> pending;
    const std::vector<HalfTest> halves = SplitTests(rule.tests);
    for (const HalfTest& half : halves) pending.push_back(AppendTest(code, half, accumulator));
    code.push_back(Return(rule.action));
    for (const PendingJump& jump : pending) {
      const size_t distance = code.size() - jump.at - 1;
      const sock_filter& placeholder = code[jump.at];
      code[jump.at] = Jump(placeholder.code, placeholder.k, jump.fails_when_true ? distance : 0,
                           jump.fails_when_true ? 0 : distance);
    }
    if (halves.empty()) return code;
    // The next rule is reached from every test of this one; only a single test leaves a known accumulator.
    if (halves.size() > 1) accumulator.reset();
  }
  code.push_back(Return(default_action));
  return code;
}

// The numbers from `first` up to the next segment share this code.
struct Segment {
  uint32_t first;
  Code code;
};

bool SameCode(const Code& a, const Code& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(sock_filter)) == 0;
}

std::vector<Segment> MakeSegments(const Policy& policy) {
  std::vector<Segment> segments;
  for (uint32_t number = 0; number <= kSyscallNumberEnd; ++number) {
    const auto found = policy.rules.find(static_cast<int>(number));
    Code code = found == policy.rules.end() ? Code{Return(policy.default_action)}
                                            : GenerateRules(found->second, policy.default_action);
    if (segments.empty() || !SameCode(segments.back().code, code)) segments.push_back({number, std::move(code)});
  }
  return segments;
}

// Appends a binary search over the segments [begin, end). The search reads only the number, so that the kernel can
// cache calls that are always allowed.
Code GenerateSearch(const std::vector<Segment>& segments, size_t begin, size_t end) {
  if (end - begin == 1) return segments[begin].code;
  const size_t middle = begin + (end - begin) / 2;
  const Code lower = GenerateSearch(segments, begin, middle);
  const Code upper = GenerateSearch(segments, middle, end);
  Code code;
  if (lower.size() <= kMaxShortJump) {
    code.push_back(Jump(BPF_JMP | BPF_JGE | BPF_K, segments[middle].first, lower.size(), 0));
  } else {
    code.push_back(Jump(BPF_JMP | BPF_JGE | BPF_K, segments[middle].first, 0, 1));
    code.push_back(Statement(BPF_JMP | BPF_JA, static_cast<uint32_t>(lower.size())));
  }
  code.insert(code.end(), lower.begin(), lower.end());
  code.insert(code.end(), upper.begin(), upper.end());
  return code;
}

}  // namespace

std::vector<sock_filter> GenerateFilter(const Policy& policy) {
  // A foreign call notifies instead of dying at once: the supervisor then has the number and the architecture as
  // evidence, and kills the sandbox without ever answering.
  Code code = {
      Load(offsetof(seccomp_data, arch)),
      Jump(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      Return(SECCOMP_RET_USER_NOTIF),
      Load(offsetof(seccomp_data, nr)),
      Jump(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 2),
      // -1 is no x32 call but the kernel's "no call at all"; it falls through to the default action.
      Jump(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0),
      Return(SECCOMP_RET_USER_NOTIF),
  };
  const std::vector<Segment> segments = MakeSegments(policy);
  const Code search = GenerateSearch(segments, 0, segments.size());
  code.insert(code.end(), search.begin(), search.end());
  if (code.size() > BPF_MAXINSNS) throw PolicyError("the program is longer than the kernel accepts");
  return code;
}

}  // namespace caisson::tools
