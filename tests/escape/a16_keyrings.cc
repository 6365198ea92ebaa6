// Keyrings belong to users and sessions, not to namespaces: a way from one sandbox to another, and request_key starts a
// program on the host.
#include <linux/keyctl.h>
#include <sys/syscall.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr char kName[] = "caisson-selftest";

// In the ring of this process alone, which ends with it; and it is found there, so that no helper program is asked for
// it.
Observation Keys() {
  Tally tally;
  tally.Add("add_key", Call(SYS_add_key, "user", kName, "x", 1, KEY_SPEC_PROCESS_KEYRING));
  tally.Add("request_key", Call(SYS_request_key, "user", kName, nullptr, 0));
  tally.Add("get", Call(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1));
  char ids[64];
  tally.Add("read", Call(SYS_keyctl, KEYCTL_READ, KEY_SPEC_PROCESS_KEYRING, ids, sizeof(ids)));
  tally.Add("join", Call(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr));
  return tally.Sum();
}

const Registration kRow(Row{
    .id = "A16",
    .title = "kernel keyrings: add_key, request_key, keyctl",
    .severity = Severity::kLateral,
    .walls = {"seccomp"},
    .attempts = {{.probe = Keys,
                  .expect = {.errnos = {EPERM},
                             .reports = {{"SyscallViolation", "syscall.keyring", "add_key"},
                                         {"SyscallViolation", "syscall.keyring", "request_key"},
                                         {"SyscallViolation", "syscall.keyring", "keyctl"}}}}},
});

}  // namespace

}  // namespace caisson::escape
