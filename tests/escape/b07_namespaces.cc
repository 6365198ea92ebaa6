// Each of the eight namespaces must be another than the host's: compared by what the kernel calls them.
#include <unistd.h>

#include <climits>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

constexpr const char* kNamespaces[] = {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"};

std::string NameOf(const char* space) {
  char target[PATH_MAX];
  const ssize_t size = ::readlink((std::string("/proc/self/ns/") + space).c_str(), target, sizeof(target));
  return std::string(target, size > 0 ? static_cast<size_t>(size) : 0);
}

Observation List() {
  std::string names;
  for (const char* space : kNamespaces) names += NameOf(space) + " ";
  return Blocked(0, names);
}

Judgement Compare(Host& host) {
  const auto bare = host.RunControl("B07/list").Saw("B07/list");
  const Outcome run = host.Run({.command = host.ProbeCommand("B07/list")});
  const auto inside = run.Saw("B07/list");
  if (!bare) return Vacuous("the list cannot be made here");
  if (!inside) return Broken("the probe said nothing: " + run.process.err);
  for (const char* space : kNamespaces) {
    const std::string mine = NameOf(space);
    // Without a sandbox they are the same, or the comparison could not notice.
    if (mine.empty() || bare->detail.find(mine) == std::string::npos)
      return Vacuous(std::string("this kernel has no ") + space + " namespace");
    if (inside->detail.find(std::string(space) + ":[") == std::string::npos)
      return Broken(std::string("the probe could not name its ") + space + " namespace");
    if (inside->detail.find(mine) != std::string::npos) return Broken(std::string("shares the host's ") + mine);
  }
  return Held("all eight differ");
}

const Registration kRow(Row{
    .id = "B07",
    .title = "a namespace shared with the host",
    .severity = Severity::kEscape,
    .walls = {"user namespace", "pid namespace", "mount namespace", "network namespace", "ipc namespace",
              "uts namespace", "cgroup namespace", "time namespace"},
    .attempts = {{.name = "list", .probe = List, .judge_only = true}},
    .judge = Compare,
});

}  // namespace

}  // namespace caisson::escape
