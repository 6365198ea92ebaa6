// Mounts that would replace parts of the sandbox: through a link of the source, and by name. The interpreter of every
// later command would be the submitter's.
#include <sched.h>
#include <sys/mount.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "escape/planted_tree.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// A bind mount by a path that leads through a link replaces what the link names.
Observation Replace() {
  const std::string top = WritableDirectory() + "/replaced";
  for (const std::string& path : {top, top + "/usr", top + "/usr/lib", top + "/workspace", top + "/evil"})
    ::mkdir(path.c_str(), 0755);
  std::ofstream(top + "/evil/mark") << "MARK";
  if (::symlink("../usr", (top + "/workspace/x").c_str()) != 0) return NotApplicable("no link can be made");
  if (::mount((top + "/evil").c_str(), (top + "/workspace/x/lib").c_str(), nullptr, MS_BIND, nullptr) != 0)
    return Blocked(errno, "mount");
  const std::string seen = ReadText(top + "/usr/lib/mark");
  ::umount2((top + "/usr/lib").c_str(), MNT_DETACH);
  std::filesystem::remove_all(top);
  return seen == "MARK" ? Escaped("replaced") : Blocked(0, "not replaced");
}

Judgement JudgeReplaced(Host& host) {
  const Outcome control = host.RunControl("H13", {.place = Place::kOwnNamespaces});
  if (const auto saw = control.Saw("H13"); !saw || saw->seen != Seen::kEscaped)
    return Vacuous("a mount through a link replaces nothing here");
  const PlantedTree tree(host);
  for (const char* name : {"usr", "etc", "dev", "proc", "tmp", "scratch", "bin", "lib", "run", "var"})
    tree.Link(name, std::string("../") + name);
  tree.Link("absolute", "/usr");
  const auto before = tree.Names();
  size_t tried = 0;
  const auto refused = [&](const std::string& source, const std::string& target,
                           const std::string& profile = "balanced") -> std::string {
    ++tried;
    const Outcome outcome =
        host.Run({.command = {"sh", "-c", "cat \"$0\" \"$0/mark\" 2>/dev/null; echo RAN", target},
                  .flags = {"--workspace", tree.source, "--profile", profile, "-v", source + ":" + target},
                  .with_probe = false});
    if (outcome.process.out.find("MARK") != std::string::npos) return target + " was replaced";
    if (outcome.process.exit_code != 125) return target + " was not refused: " + outcome.process.err;
    if (const std::string changed = Difference(before, tree.Names()); !changed.empty())
      return target + " changed the host:" + changed;
    return "";
  };
  for (const char* target :
       {"/usr/lib", "/usr/bin", "/usr/new", "/absolute/lib", "/etc/alternatives", "/etc/new", "/dev/shm", "/dev/new",
        "/proc/sys", "/proc/self", "/tmp", "/tmp/new", "/scratch/new", "/bin", "/lib", "/run/new", "/var/new"}) {
    if (const std::string fault = refused(tree.directory, std::string("/workspace") + target); !fault.empty())
      return Broken(fault);
  }
  for (const char* target : {"/usr/bin/env", "/etc/passwd", "/etc/ld.so.cache", "/etc/ld.so.preload", "/dev/null",
                             "/proc/self/mem", "/bin/sh", "/tmp/new"}) {
    if (const std::string fault = refused(tree.file, std::string("/workspace") + target); !fault.empty())
      return Broken(fault);
  }
  for (const char* target : {"/usr",
                             "/usr/lib",
                             "/usr/local/lib",
                             "/bin",
                             "/bin/sh",
                             "/lib/x",
                             "/lib64",
                             "/etc",
                             "/etc/x",
                             "/proc",
                             "/proc/sys",
                             "/dev",
                             "/dev/shm",
                             "/dev/shm/x",
                             "/sys",
                             "/sys/fs",
                             "/scratch",
                             "/tmp",
                             "/var/tmp",
                             "/var/tmp/x",
                             "/",
                             "/workspace/../usr",
                             "/usr/../etc",
                             "//usr",
                             "/./usr"}) {
    if (const std::string fault = refused(tree.directory, target); !fault.empty()) return Broken(fault);
    const Outcome outcome = host.Verify(json{{"source", {{"files", {{"file", "x"}}}}},
                                             {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"true"}}}}},
                                             {"mounts", {{{"source", tree.directory}, {"target", target}}}}}
                                            .dump());
    if (outcome.process.exit_code != 2 && outcome.process.exit_code != 3)
      return Broken(std::string("verify takes the target ") + target);
  }
  // A mount may not replace or cover the additional mounts of a profile either.
  const std::string profile = host.WriteFile("more.yaml",
                                             "version: 1\nname: more\nextends: balanced\n"
                                             "system_paths: [/usr, /bin, /sbin, /lib, /lib64, /srv, /opt/a/b]\n");
  for (const char* target : {"/srv", "/srv/x", "/opt/a/b", "/opt/a/b/c", "/opt/a", "/opt"}) {
    if (const std::string fault = refused(tree.directory, target, profile); !fault.empty()) return Broken(fault);
  }
  // The source itself is not to be replaced by a mount either: the verdict would be about something else.
  const Outcome outcome = host.Verify(json{{"source", {{"files", {{"file", "x"}}}}},
                                           {"checks", {{{"name", "c"}, {"tier", "run"}, {"argv", {"true"}}}}},
                                           {"mounts", {{{"source", tree.directory}, {"target", "/workspace"}}}}}
                                          .dump());
  if (outcome.process.exit_code != 2 && outcome.process.exit_code != 3)
    return Broken("verify takes a mount in place of the source");
  return Held(std::to_string(tried) + " mounts refused");
}

const Registration kRow(Row{
    .id = "H13",
    .title = "mounts in place of programs, libraries, /etc, /dev and /proc",
    .severity = Severity::kIntegrity,
    .walls = {"mount points are opened without following links", "request limits"},
    .attempts = {{.probe = Replace, .judge_only = true}},
    .judge = JudgeReplaced,
});

}  // namespace

}  // namespace caisson::escape
