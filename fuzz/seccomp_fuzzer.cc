// Any call a workload could make: the compiled filter and the meaning of the JSON it was made from must agree, and for
// a call that notifies the supervisor's rule as well.
#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cstring>
#include <optional>

#include "base/check.h"
#include "sandbox/seccomp_program.h"
#include "support/bpf_evaluator.h"
#include "support/seccomp_oracle.h"
#include "target.h"

namespace {

using caisson::sandbox::FindNotifyRule;
using caisson::sandbox::FindSeccompProgram;
using caisson::support::BpfEvaluator;
using caisson::support::SeccompOracle;

struct Compared {
  explicit Compared(const char* profile)
      : program(*FindSeccompProgram(profile)),
        evaluator(program.filter),
        oracle(CAISSON_PROFILE_DIR "/seccomp", profile) {}

  const caisson::sandbox::SeccompProgram& program;
  BpfEvaluator evaluator;
  SeccompOracle oracle;
};

// Most random inputs name a foreign architecture or an unknown number; the first byte makes valid ones likely.
seccomp_data Likely(uint8_t choice, seccomp_data data) {
  if ((choice & 3) != 0) data.arch = AUDIT_ARCH_X86_64;
  if ((choice & 12) != 0) data.nr = static_cast<int>(static_cast<unsigned>(data.nr) % 480);
  // Small arguments are what rules compare.
  for (size_t i = 0; i < 6; ++i) {
    if ((choice & 16) != 0 && (choice >> 5) != i) data.args[i] &= 0xffff;
  }
  return data;
}

}  // namespace

CAISSON_FUZZ_TARGET(seccomp) {
  static Compared balanced("balanced"), watched("balanced-watched"), session("session"),
      session_watched("session-watched"), strict("strict");
  seccomp_data data = {};
  if (size < 1 + sizeof(data)) return 0;
  std::memcpy(&data, bytes + 1, sizeof(data));
  data = Likely(bytes[0], data);
  for (Compared* one : {&balanced, &watched, &session, &session_watched, &strict}) {
    const SeccompOracle::Verdict expected = one->oracle.Decide(data);
    const std::optional<uint32_t> actual = one->evaluator.Run(data);
    CAISSON_CHECK(actual == expected.action);
    if (*actual != SECCOMP_RET_USER_NOTIF) continue;
    const auto* rule = FindNotifyRule(one->program, data);
    CAISSON_CHECK(rule != nullptr && caisson::support::SaysTheSame(*rule, *expected.extension));
  }
  return 0;
}
