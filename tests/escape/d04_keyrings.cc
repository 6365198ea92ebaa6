// Keyrings belong to users, and users are shared: two sandboxes of an ordinary user have the same one.
#include <linux/keyctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "escape/neighbour.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

std::string Word() {
  const char* word = ::getenv("SELFTEST_WORD");
  return word != nullptr ? word : "";
}

Observation Make() {
  const long key = Call(SYS_add_key, "user", Word().c_str(), "x", 1, KEY_SPEC_USER_KEYRING);
  SayReadyAndWait();
  if (key >= 0) Call(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_USER_KEYRING);
  return FromCall(key, "left a key");
}

// The user's persistent keyring, the user's keyring, and the session keyring of the caller.
Observation Find() {
  Tally tally;
  tally.Add("user", Call(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", Word().c_str(), 0));
  return tally.Sum();
}

Judgement JudgeNeighbour(Host& host) {
  const Environment env = {{"SELFTEST_WORD", "caisson-selftest-" + std::to_string(::getpid())}};
  {
    Neighbour bare = Neighbour::Bare(host, "D04/make", env);
    const auto saw = SawBare(host, "D04/find", env);
    bare.End();
    if (!saw || saw->seen != Seen::kEscaped) return Vacuous("bare programs do not share keys here");
  }
  Neighbour a = Neighbour::InSandbox(host, "D04/make", env);
  const Outcome b = host.Run({.command = host.ProbeCommand("D04/find"), .env = env});
  const Outcome made = a.End();
  for (const auto& [run, id] : {std::pair{&made, "D04/make"}, std::pair{&b, "D04/find"}}) {
    const auto saw = run->Saw(id);
    if (!saw) return Broken(std::string(id) + " said nothing: " + run->process.err);
    if (saw->seen != Seen::kBlocked || saw->error != EPERM) return Broken(std::string(id) + ": " + saw->detail);
    if (run->result->Find("SyscallViolation", "syscall.keyring") == nullptr)
      return Broken(std::string(id) + " was not reported");
  }
  return Held("EPERM syscall.keyring");
}

const Registration kRow(Row{
    .id = "D04",
    .title = "a key that one sandbox leaves in its user's keyring for another",
    .severity = Severity::kLateral,
    .walls = {"seccomp", "own user ids"},
    .attempts = {{.name = "make", .probe = Make, .judge_only = true},
                 {.name = "find", .probe = Find, .judge_only = true}},
    .judge = JudgeNeighbour,
});

}  // namespace

}  // namespace caisson::escape
