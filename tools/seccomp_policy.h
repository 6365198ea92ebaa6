// A system-call policy as written in profiles/seccomp/*.json: the LinuxSeccomp shape of the OCI runtime specification,
// with `x-caisson` keys for what that shape cannot express. Build-time only.
//
// Meaning: the rules of one system call are tried in the order of the file and the first match decides; a call without
// a matching rule gets the default action. A rule without arguments that follows others of the same call must be marked
// `"x-caisson": {"except": true}` ("everything the others did not match"), so that no rule is shadowed by accident.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace caisson::tools {

// A fault of the policy, described for its author.
class PolicyError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// True when (args[index] & mask) == value.
struct PolicyTest {
  unsigned index = 0;
  uint64_t mask = 0;
  uint64_t value = 0;
};

// What the supervisor does with a call that notifies. The strings are spelled as C++ enumerators, ready to be written.
struct PolicyNotice {
  std::string disposition;      // "kDeny"
  std::string violation_class;  // "kSyscall"
  std::string reason;           // "syscall.mount"
  unsigned errno_value = 0;     // for kDeny
};

struct PolicyRule {
  uint32_t action = 0;            // SECCOMP_RET_*, with the errno in its data
  std::vector<PolicyTest> tests;  // all must hold; at most kMaxTests
  std::optional<PolicyNotice> notice;
};

struct Policy {
  static constexpr size_t kMaxTests = 3;

  uint32_t default_action = 0;
  PolicyNotice foreign;  // for calls of any other architecture, x32 included
  std::map<int, std::vector<PolicyRule>> rules;
  std::string source;  // the bytes of the file, followed by those of the one it extends
};

// Reads and validates a policy. Throws PolicyError for anything it does not fully understand.
Policy LoadPolicy(const std::string& path);

// The native name of a system call number, or an empty string.
std::string SyscallNameOf(int number);

// One more than the greatest system call number that SyscallNameOf may know.
inline constexpr int kSyscallNumberEnd = 512;

}  // namespace caisson::tools
