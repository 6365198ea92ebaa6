// Profiles that give up one wall each: which wall that is, and whether the native runtime runs without it.
#pragma once

namespace caisson::support {

// One wall taken down, and nothing else.
struct Removed {
  const char* parent;
  const char* yaml;
  const char* wall;
  bool native_runs;
};

inline constexpr Removed kRemoved[] = {
    {"balanced", "namespaces: [pid, mount, network, ipc, uts, cgroup, time]", "namespaces.user", false},
    {"balanced", "namespaces: [user, mount, network, ipc, uts, cgroup, time]", "namespaces.pid", false},
    {"balanced", "namespaces: [user, pid, network, ipc, uts, cgroup, time]", "namespaces.mount", false},
    {"balanced", "namespaces: [user, pid, mount, ipc, uts, cgroup, time]", "namespaces.network", false},
    {"balanced", "namespaces: [user, pid, mount, network, uts, cgroup, time]", "namespaces.ipc", true},
    {"balanced", "namespaces: [user, pid, mount, network, ipc, cgroup, time]", "namespaces.uts", true},
    {"balanced", "namespaces: [user, pid, mount, network, ipc, uts, time]", "namespaces.cgroup", true},
    {"balanced", "namespaces: [user, pid, mount, network, ipc, uts, cgroup]", "namespaces.time", true},
    {"strict", "strength: native", "strength", true},
    {"balanced", "system_paths: [/usr, /opt]", "system_paths./opt", true},
    {"balanced", "etc_paths: [/etc/ssl/certs]", "etc_paths./etc/ssl/certs", true},
    {"strict", "proc: {subset: all, masked_files: [], masked_directories: []}", "proc.subset", true},
    {"balanced",
     "proc: {masked_files: [kcore, kmsg, sysrq-trigger, keys, key-users, kallsyms, interrupts, iomem, locks, cmdline, "
     "cgroups, diskstats, partitions, softirqs, sys/kernel/random/boot_id]}",
     "proc.masked_files.modules", true},
    {"balanced", "proc: {masked_directories: [acpi, asound, bus, driver, fs, irq, pressure]}",
     "proc.masked_directories.scsi", true},
    {"balanced", "mounts: [{source: /srv, target: /data}]", "mounts./data", true},
    {"balanced", "mounts: [{source: /srv, target: /data, access: rw}]", "mounts./data", true},
    {"balanced", "workspace: cow", "workspace", true},
    {"balanced", "seccomp: {filter: none}", "seccomp.filter.none", false},
    {"strict", "seccomp: {filter: balanced}", "seccomp.filter", true},
    {"balanced", "seccomp: {allow: [ptrace]}", "seccomp.allow.ptrace", true},
    {"balanced", "landlock: false", "landlock", true},
    {"balanced", "capabilities: [CAP_KILL]", "capabilities.CAP_KILL", false},
    {"balanced", "no_new_privileges: false", "no_new_privileges", false},
    {"balanced", "limits: {command_timeout_ms: 46s}", "limits.command_timeout_ms", true},
    {"balanced", "limits: {budget_ms: 181s}", "limits.budget_ms", true},
    {"balanced", "limits: {cpu: 2.001}", "limits.cpu", true},
    {"balanced", "limits: {memory_bytes: 1025MiB}", "limits.memory_bytes", true},
    {"balanced", "limits: {processes: 257}", "limits.processes", true},
    {"balanced", "limits: {output_bytes: 11MiB}", "limits.output_bytes", true},
    {"balanced", "limits: {scratch_bytes: 513MiB}", "limits.scratch_bytes", true},
    {"balanced", "limits: {scratch_inodes: 65537}", "limits.scratch_inodes", true},
    {"balanced", "approvals: {network: ask}", "approvals.network", true},
    {"balanced", "network: {mode: allowlist}", "network.mode", true},
    {"balanced", "network: {private_ranges: [10.1.0.0/16]}", "network.private_ranges.10.1.0.0/16", true},
    {"balanced", "network: {limits: {connections: 257}}", "network.limits.connections", true},
    {"balanced", "network: {limits: {connections_per_second: 101}}", "network.limits.connections_per_second", true},
    {"balanced", "ignored_writes: [src]", "ignored_writes.src", true},
    {"balanced", "probes: [{write: /var/lib/mine, why: x}]", "probes./var/lib/mine", true},
    {"balanced", "on_violation: report", "on_violation", true},
    {"balanced", "allow_degraded: [cgroup, landlock]", "allow_degraded.landlock", true},
    {"strict", "start: zygote", "start", true},
    {"strict", "allow_degraded: [cgroup]", "allow_degraded.cgroup", true},
};

}  // namespace caisson::support
