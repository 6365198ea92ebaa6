#include "policy/profile.h"

#include <algorithm>

namespace caisson::policy {

namespace {

Profile MakeBalanced() {
  Profile profile;
  profile.name = "balanced";
  profile.seccomp = "balanced";
  // The loader's cache, the alternatives that /usr/bin links to, and what compilers and runtimes read at start.
  profile.etc_paths = {"/etc/alternatives", "/etc/ld.so.cache", "/etc/java-17-openjdk"};
  // What an ordinary user can read there and should not, and three that would be worst if he could. The rest of the
  // kernel's files belong to a root this user namespace does not have.
  profile.masked_proc_files = {"kcore",    "kmsg",       "sysrq-trigger", "keys",   "key-users",
                               "kallsyms", "interrupts", "iomem",         "modules"};
  profile.masked_proc_directories = {"acpi", "asound", "bus", "driver", "fs", "irq", "scsi"};
  profile.environment = {
      {"PATH", "/usr/local/bin:/usr/bin:/bin"},
      {"HOME", "/scratch"},
      {"TMPDIR", "/tmp"},
      {"XDG_CACHE_HOME", "/scratch/.cache"},
      {"USER", "user"},
      {"LOGNAME", "user"},
      {"SHELL", "/bin/sh"},
      {"LANG", "C.UTF-8"},
      {"PYTHONDONTWRITEBYTECODE", "1"},
      {"PYTHONNOUSERSITE", "1"},
      // Reading a repository must not try to refresh its index.
      {"GIT_OPTIONAL_LOCKS", "0"},
  };
  profile.ignored_writes = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"};
  profile.allow_degraded = {"cgroup"};
  return profile;
}

Profile MakeStrict() {
  Profile profile = MakeBalanced();
  profile.name = "strict";
  profile.seccomp = "strict";
  profile.proc_pids_only = true;
  profile.masked_proc_files.clear();  // nothing but processes is there to mask
  profile.masked_proc_directories.clear();
  profile.limits.command_timeout_ms = 20'000;
  profile.limits.budget_ms = 60'000;
  profile.limits.cpu_millis = 1'000;
  profile.limits.memory_bytes = int64_t{512} << 20;
  profile.limits.processes = 64;
  profile.limits.output_bytes = int64_t{1} << 20;
  profile.limits.scratch_bytes = int64_t{128} << 20;
  profile.limits.scratch_inodes = 16'384;
  profile.allow_degraded = {};
  return profile;
}

const std::vector<Profile>& BuiltIn() {
  static const std::vector<Profile> profiles = {MakeBalanced(), MakeStrict()};
  return profiles;
}

}  // namespace

bool Profile::Allows(std::string_view degraded_wall) const {
  return std::find(allow_degraded.begin(), allow_degraded.end(), degraded_wall) != allow_degraded.end();
}

const Profile* FindProfile(std::string_view name) {
  for (const Profile& profile : BuiltIn()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const Profile& profile : BuiltIn()) names.push_back(profile.name);
  return names;
}

}  // namespace caisson::policy
