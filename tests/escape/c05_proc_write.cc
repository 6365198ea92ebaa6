// Files of /proc that steer the kernel. core_pattern and modprobe name programs that the kernel runs as root.
//
// SAFETY: the controls open them for writing and write nothing; what they write is in name spaces of their own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr const char* kSwitches[] = {"/proc/sysrq-trigger",
                                     "/proc/sys/kernel/core_pattern",
                                     "/proc/sys/kernel/core_pipe_limit",
                                     "/proc/sys/kernel/modprobe",
                                     "/proc/sys/kernel/hotplug",
                                     "/proc/sys/kernel/poweroff_cmd",
                                     "/proc/sys/kernel/randomize_va_space",
                                     "/proc/sys/kernel/unprivileged_bpf_disabled",
                                     "/proc/sys/kernel/panic",
                                     "/proc/sys/vm/overcommit_memory",
                                     "/proc/sys/vm/drop_caches",
                                     "/proc/sys/vm/panic_on_oom",
                                     "/proc/sys/fs/suid_dumpable",
                                     "/proc/sys/fs/binfmt_misc/register",
                                     "/proc/sys/user/max_user_namespaces",
                                     "/proc/irq/default_smp_affinity",
                                     "/proc/mtrr",
                                     "/proc/kcore",
                                     "/proc/kmsg"};

Observation Switches() {
  Tally tally;
  for (const char* path : kSwitches) {
    // A file masked with the null device counts as absent.
    struct stat info {};
    if (::stat(path, &info) == 0 && S_ISCHR(info.st_mode)) continue;
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    tally.Add(path, fd < 0 ? -errno : 0);
    if (fd >= 0) ::close(fd);
  }
  return tally.SumAny();
}

// Each network namespace has its own, and its root may write them.
Observation Network() {
  int error = 0;
  return WriteText("/proc/sys/net/ipv4/ip_default_ttl", "63", &error) ? Escaped("changed a setting") : Blocked(error);
}

// Belongs to the workload's user: only the mount refuses.
Observation Own() {
  Tally tally;
  for (const auto& [name, text] :
       {std::pair{"comm", "x"}, std::pair{"oom_score_adj", "1000"}, std::pair{"timerslack_ns", "1"}}) {
    int error = 0;
    tally.Add(name, WriteText(std::string("/proc/self/") + name, text, &error) ? 0 : -error);
  }
  return tally.Sum();
}

const Registration kRow(Row{
    .id = "C05",
    .title = "steering the kernel by /proc: sysrq, core_pattern, modprobe, binfmt_misc, irq",
    .severity = Severity::kEscape,
    .walls = {"read-only /proc", "user namespace", "capabilities", "landlock"},
    .attempts = {{.name = "switches",
                  .probe = Switches,
                  .control = {.reaches_kernel = true},
                  .expect = {.errnos = {EROFS, EACCES, ENOENT}, .reports = {{"FilesystemWriteViolation", "fs.write"}}}},
                 {.name = "network",
                  .probe = Network,
                  .control = {.place = Place::kOwnNamespaces},
                  .expect = {.errnos = {EROFS, EACCES}, .reports = {{"FilesystemWriteViolation", "fs.write"}}}},
                 {.name = "own", .probe = Own, .expect = {.errnos = {EROFS}}}},
});

}  // namespace

}  // namespace caisson::escape
