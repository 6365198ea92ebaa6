// A system-call filter that the build compiles from profiles/seccomp/*.json (see tools/seccomp_compile.cc).
//
// The BPF program decides allow / errno / notify. For a call that notifies, the rules below, generated from the same
// JSON, say how the supervisor answers. Rules use registers only, never the workload's memory, so the workload has
// nothing to race.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/violation.h"

namespace caisson::sandbox {

enum class Disposition : uint8_t {
  kObserve,  // the kernel's other walls decide: record it and always let it continue
  kDeny,     // record it and answer with an errno
  kKill,     // record it, never answer, kill the whole sandbox
};

// True when (args[index] & mask) == value.
struct ArgumentTest {
  uint8_t index;
  uint64_t mask;
  uint64_t value;
};

struct NotifyRule {
  int32_t number;  // system call number of the native architecture; kForeignArchitecture for any call of another one
  Disposition disposition;
  uint16_t errno_value;  // for kDeny
  ViolationClass violation_class;
  const char* reason;  // "syscall.mount", "net.connect", "fs.write", …
  uint8_t test_count;  // all of them must hold
  ArgumentTest tests[3];
};

inline constexpr int32_t kForeignArchitecture = -1;

struct SeccompProgram {
  const char* name;    // profile name: "balanced"
  const char* sha256;  // of the JSON source, hex
  std::span<const sock_filter> filter;
  std::span<const NotifyRule> rules;  // sorted by number; within a number the first match wins
};

// A program with some calls decided in front of it, by number alone and for the native architecture only.
class ExtendedProgram {
 public:
  ExtendedProgram(const SeccompProgram& base, std::span<const int32_t> allowed, std::span<const int32_t> denied);
  ExtendedProgram(const ExtendedProgram&) = delete;
  ExtendedProgram& operator=(const ExtendedProgram&) = delete;

  const SeccompProgram& program() const { return program_; }

 private:
  std::vector<sock_filter> filter_;
  std::vector<NotifyRule> rules_;
  SeccompProgram program_;
};

// The built-in program of that name, or nullptr.
const SeccompProgram* FindSeccompProgram(const char* name);

// The rule for a call for which the filter returned SECCOMP_RET_USER_NOTIF. For any other call the answer is
// meaningless, because a rule may be meant only for the calls that an earlier allowing rule leaves over. nullptr means:
// refuse the call; no built-in program leads to it.
const NotifyRule* FindNotifyRule(const SeccompProgram& program, const seccomp_data& data);

// The answer of the program to a call, as the kernel computes it: an action of SECCOMP_RET_* with its data. For
// observers of a kernel that does not run the program itself.
uint32_t RunFilter(const SeccompProgram& program, const seccomp_data& data);

}  // namespace caisson::sandbox
