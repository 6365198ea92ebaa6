// The golden files are in tests/render/golden, one per profile and format; CAISSON_UPDATE_GOLDENS=1 rewrites them. In
// addition, two linters check what must hold for every rendering, and the tests show that each linter notices every
// single removed setting.
#include "policy/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "policy/render/container_terms.h"

namespace caisson::policy {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kProfiles[] = {"balanced", "session", "strict"};
constexpr const char* kFormats[] = {"apparmor", "docker", "kubernetes", "oci", "seccomp", "selinux"};

Profile Named(const std::string& name) {
  const Profile* profile = FindBuiltIn(name);
  EXPECT_NE(profile, nullptr) << name;
  return *profile;
}

std::string Rendered(const std::string& format, const Profile& profile) {
  Result<std::string> text = Render(format, profile);
  EXPECT_TRUE(text) << format << ": " << (text ? "" : text.error().message);
  return text ? *text : "";
}

// The filter has a golden file of its own; the other golden files only show its place.
std::string WithoutFilter(const std::string& format, const std::string& text, const Profile& profile) {
  if (format != "oci" && format != "docker") return text;
  const ordered_json filter = *render::SeccompDocument(profile);
  ordered_json document = ordered_json::parse(text);
  if (format == "oci") {
    EXPECT_EQ(document["linux"]["seccomp"], filter);
    document["linux"]["seccomp"] = "(as rendered alone)";
  } else {
    ordered_json& option = document["HostConfig"]["SecurityOpt"][1];
    EXPECT_EQ(option, "seccomp=" + filter.dump());
    option = "seccomp=(as rendered alone)";
  }
  return render::PrintJson(document);
}

TEST(Render, Goldens) {
  const bool update = std::getenv("CAISSON_UPDATE_GOLDENS") != nullptr;
  for (const char* name : kProfiles) {
    for (const char* format : kFormats) {
      const Profile profile = Named(name);
      const std::string text = WithoutFilter(format, Rendered(format, profile), profile);
      const std::string file = std::string(CAISSON_GOLDEN_DIR) + "/" + name + "." + format;
      if (update) std::ofstream(file, std::ios::binary) << text;
      std::ifstream stream(file, std::ios::binary);
      std::stringstream golden;
      golden << stream.rdbuf();
      EXPECT_TRUE(golden.str() == text) << file << " differs; look at: CAISSON_UPDATE_GOLDENS=1 render_test; git diff";
    }
  }
}

TEST(Render, EveryFormatRefusesAProfileWithoutAFilter) {
  Profile profile = Named("balanced");
  profile.seccomp.filter = "none";
  for (const char* format : kFormats) EXPECT_FALSE(Render(format, profile)) << format;
}

TEST(Render, EveryFormatIsTheSameTwice) {
  for (const char* format : kFormats)
    EXPECT_EQ(Rendered(format, Named("session")), Rendered(format, Named("session"))) << format;
}

TEST(Render, WritableAreasTogetherStayBelowTheCap) {
  for (std::vector<std::string> paths : {std::vector<std::string>{"/scratch"},
                                         {"/scratch", "/tmp"},
                                         {"/scratch", "/dev/shm"},
                                         {"/scratch", "/tmp", "/dev/shm"}}) {
    Profile profile = Named("balanced");
    profile.writable_paths = paths;
    profile.limits.scratch_bytes = 1'000'003;
    profile.limits.scratch_inodes = 1'003;
    int64_t bytes = 0, inodes = 0;
    for (const render::WritableArea& area : render::WritableAreas(profile)) {
      EXPECT_GT(area.inodes, 0);
      bytes += area.bytes;
      inodes += area.inodes;
    }
    EXPECT_LE(bytes, profile.limits.scratch_bytes);
    EXPECT_GE(bytes, profile.limits.scratch_bytes - 3);
    EXPECT_LE(inodes, profile.limits.scratch_inodes);
  }
}

TEST(Render, NamesOfAnyProfileFitTheirFormats) {
  Profile profile = Named("balanced");
  profile.name = "My.Team_1-";
  EXPECT_NE(Rendered("kubernetes", profile).find("name: \"caisson-my-team-1\"\n"), std::string::npos);
  EXPECT_NE(Rendered("selinux", profile).find("(type caisson_my_team_1_t)"), std::string::npos);
  EXPECT_NE(Rendered("apparmor", profile).find("profile caisson-My.Team_1- flags"), std::string::npos);
}

TEST(Render, PathsCannotBreakOutOfAnAppArmorRule) {
  Profile profile = Named("balanced");
  profile.system_paths = {"/opt/a*b c\"{x}"};
  const std::string text = Rendered("apparmor", profile);
  EXPECT_NE(text.find(R"("/opt/a\*b c\"\{x\}{,/,/**}" mrix,)"), std::string::npos) << text;
}

TEST(Render, CopiesThatCannotBeMadeAreReadOnly) {
  Profile profile = Named("session");
  ASSERT_EQ(profile.workspace, Access::kCopyOnWrite);
  profile.mounts = {{"/srv/cow", "/data/cow", Access::kCopyOnWrite}, {"/srv/rw", "/data/rw", Access::kReadWrite}};
  std::map<std::string, json> oci, docker;
  const json oci_document = json::parse(Rendered("oci", profile));
  const json docker_document = json::parse(Rendered("docker", profile));
  for (const json& mount : oci_document["mounts"]) oci[mount["destination"]] = mount["options"];
  for (const json& mount : docker_document["HostConfig"]["Mounts"]) docker[mount["Target"]] = mount["ReadOnly"];
  for (const char* path : {"/workspace", "/data/cow"}) {
    EXPECT_EQ(oci[path][1], "rro") << path;
    EXPECT_EQ(docker[path], true) << path;
  }
  EXPECT_EQ(oci["/data/rw"][1], "rw");
  EXPECT_EQ(docker["/data/rw"], false);
  EXPECT_NE(Rendered("kubernetes", profile).find("mountPath: \"/workspace\"\n              readOnly: true"),
            std::string::npos);
}

// --- Linters ---

class Linter {
 public:
  void Require(bool holds, const std::string& what) {
    if (!holds) faults_.push_back(what);
  }
  std::vector<std::string> Take() { return std::move(faults_); }

 private:
  std::vector<std::string> faults_;
};

const json& At(const json& document, const char* pointer) {
  static const json kNothing;
  const json::json_pointer path(pointer);
  return document.contains(path) ? document[path] : kNothing;
}

std::vector<std::string> Texts(const json& list) {
  std::vector<std::string> texts;
  if (list.is_array()) {
    for (const json& item : list) texts.push_back(item.is_string() ? item.get<std::string>() : "");
  }
  return texts;
}

bool Contains(const json& list, const std::string& word) {
  const std::vector<std::string> texts = Texts(list);
  return std::find(texts.begin(), texts.end(), word) != texts.end();
}

void LintFilter(const json& filter, Linter& out) {
  out.Require(filter.is_object() && filter.value("defaultAction", "") == "SCMP_ACT_ERRNO",
              "a filter that denies by default");
  out.Require(At(filter, "/architectures") == json::array({"SCMP_ARCH_X86_64"}), "one architecture");
  out.Require(At(filter, "/flags") == json::array(), "no flags of the filter");
  bool mount_refused = true, notifies = false;
  for (const json& rule : At(filter, "/syscalls")) {
    if (Contains(rule["names"], "mount") && rule["action"] == "SCMP_ACT_ALLOW") mount_refused = false;
    if (rule["action"] == "SCMP_ACT_NOTIFY") notifies = true;
  }
  out.Require(mount_refused, "mount is refused");
  out.Require(!notifies, "nothing waits for a listener");
}

std::vector<std::string> LintOci(const json& config, const Profile& profile) {
  Linter out;
  const json none = json::array();
  out.Require(At(config, "/root/readonly") == true, "root read-only");
  out.Require(At(config, "/root/path") == "rootfs", "root of the bundle");
  out.Require(!config.contains("hooks"), "no hooks");
  out.Require(At(config, "/process/noNewPrivileges") == true, "no new privileges");
  out.Require(At(config, "/process/user/uid") == 1000 && At(config, "/process/user/gid") == 1000, "an ordinary user");
  out.Require(At(config, "/process/user/additionalGids") == none, "no groups");
  out.Require(At(config, "/process/terminal") == false, "no terminal of the host");
  for (const char* set : {"bounding", "effective", "inheritable", "permitted", "ambient"})
    out.Require(At(config, (std::string("/process/capabilities/") + set).c_str()) == none, std::string("no ") + set);
  std::vector<std::string> limits;
  for (const json& limit : At(config, "/process/rlimits")) limits.push_back(limit["type"]);
  for (const char* name : {"CORE", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "RTPRIO", "SIGPENDING", "STACK"})
    out.Require(std::count(limits.begin(), limits.end(), std::string("RLIMIT_") + name) == 1, std::string(name));

  std::vector<std::string> namespaces;
  for (const json& one : At(config, "/linux/namespaces")) {
    namespaces.push_back(one["type"]);
    out.Require(!one.contains("path"), "a new namespace, not one of the host's");
  }
  for (const char* type : {"user", "pid", "mount", "network", "ipc", "uts", "cgroup"})
    out.Require(std::count(namespaces.begin(), namespaces.end(), type) == 1, std::string("namespace ") + type);
  for (const char* key : {"/linux/uidMappings", "/linux/gidMappings"}) {
    const json& map = At(config, key);
    out.Require(map.size() == 1 && map[0].value("hostID", 0) > 65535, "ids that are nobody's on the host");
  }
  out.Require(At(config, "/linux/cgroupsPath").is_null(), "a cgroup of its own");
  out.Require(At(config, "/linux/rootfsPropagation") == "rprivate", "no propagation");
  out.Require(At(config, "/linux/sysctl").is_null(), "no sysctls");
  out.Require(At(config, "/linux/devices").is_null(), "no devices besides");
  out.Require(At(config, "/linux/resources/devices/0") == json({{"allow", false}, {"access", "rwm"}}),
              "devices denied");
  out.Require(At(config, "/linux/resources/memory/limit") == profile.limits.memory_bytes, "memory");
  out.Require(At(config, "/linux/resources/memory/swap") == profile.limits.memory_bytes, "no swap");
  out.Require(At(config, "/linux/resources/memory/disableOOMKiller") == false, "the OOM killer");
  out.Require(At(config, "/linux/resources/pids/limit") == profile.limits.processes, "processes");
  const json& cpu = At(config, "/linux/resources/cpu");
  out.Require(cpu.is_object() && cpu.value("quota", int64_t{-1}) > 0 &&
                  cpu["quota"].get<int64_t>() * 1000 <= profile.limits.cpu_millis * cpu.value("period", int64_t{0}),
              "cpu");
  for (const std::string& path : render::MaskedPaths(profile))
    out.Require(Contains(At(config, "/linux/maskedPaths"), path), "masked " + path);
  out.Require(Contains(At(config, "/linux/maskedPaths"), "/dev/tty"), "masked /dev/tty");
  for (const char* path : render::kReadOnlyPaths)
    out.Require(Contains(At(config, "/linux/readonlyPaths"), path), std::string("read-only ") + path);
  LintFilter(At(config, "/linux/seccomp"), out);

  int64_t writable = 0;
  for (const json& mount : At(config, "/mounts")) {
    const std::string target = mount["destination"];
    const json& options = mount["options"];
    if (mount["type"] == "bind") {
      out.Require(Contains(options, "rro") && !Contains(options, "rw"), target + " read-only");
      out.Require(Contains(options, "rnosuid") && Contains(options, "rnodev"), target + " without powers");
    } else if (mount["type"] == "proc") {
      out.Require(Contains(options, "ro"), "/proc read-only");
      out.Require(Contains(options, "subset=pid") == profile.proc.pids_only, "what /proc shows");
    } else {
      out.Require(mount["type"] == "tmpfs", target + " of no other kind");
      out.Require(Contains(options, "nosuid"), target + " nosuid");
      if (target == "/dev") continue;
      out.Require(Contains(options, "nodev"), target + " nodev");
      for (const std::string& option : Texts(options)) {
        if (option.rfind("size=", 0) == 0) writable += std::stoll(option.substr(5));
      }
      out.Require(options.dump().find("\"size=") != std::string::npos, target + " has a size");
      out.Require(options.dump().find("\"nr_inodes=") != std::string::npos, target + " has a number of files");
    }
  }
  out.Require(writable > 0 && writable <= profile.limits.scratch_bytes, "scratch");
  return out.Take();
}

std::vector<std::string> LintDocker(const json& body, const Profile& profile) {
  Linter out;
  const json& host = At(body, "/HostConfig");
  const auto is = [&](const char* key, const json& value) {
    out.Require(At(host, (std::string("/") + key).c_str()) == value, key);
  };
  out.Require(body.value("Image", "").find("@sha256:") != std::string::npos, "an image by digest");
  out.Require(At(body, "/Entrypoint") == json::array({""}), "no entry point of the image");
  out.Require(At(body, "/Healthcheck/Test") == json::array({"NONE"}), "no health check of the image");
  out.Require(body.value("User", "") == "1000:1000", "an ordinary user");
  out.Require(At(body, "/NetworkDisabled") == true, "no network");
  out.Require(At(body, "/WorkingDir") == "/workspace", "working directory");
  is("Privileged", false);
  is("ReadonlyRootfs", true);
  is("CapAdd", json::array());
  is("CapDrop", json::array({"ALL"}));
  is("NetworkMode", "none");
  is("PidMode", "");
  is("UTSMode", "");
  is("UsernsMode", "");
  is("IpcMode", "private");
  is("CgroupnsMode", "private");
  is("Memory", profile.limits.memory_bytes);
  is("MemorySwap", profile.limits.memory_bytes);
  is("OomKillDisable", false);
  is("PidsLimit", profile.limits.processes);
  is("NanoCpus", profile.limits.cpu_millis * 1'000'000);
  is("Devices", json::array());
  is("PublishAllPorts", false);
  is("Init", false);
  is("LogConfig", {{"Type", "json-file"},
                   {"Config", {{"max-size", std::to_string(profile.limits.output_bytes)}, {"max-file", "1"}}}});
  out.Require(!host.contains("Binds"), "no binds");
  out.Require(Contains(At(host, "/SecurityOpt"), "no-new-privileges=true"), "no new privileges");
  json filter;
  for (const std::string& option : Texts(At(host, "/SecurityOpt"))) {
    if (option.rfind("seccomp=", 0) == 0) filter = json::parse(option.substr(8), nullptr, false);
  }
  LintFilter(filter, out);
  for (const std::string& path : render::MaskedPaths(profile))
    out.Require(Contains(At(host, "/MaskedPaths"), path), "masked " + path);
  for (const char* path : {"/sys", "/dev/mqueue"})
    out.Require(Contains(At(host, "/MaskedPaths"), path), std::string("masked ") + path);
  for (const char* path : render::kReadOnlyPaths)
    out.Require(Contains(At(host, "/ReadonlyPaths"), path), std::string("read-only ") + path);
  out.Require(At(host, "/Ulimits").size() == 9, "limits per process");
  out.Require(At(host, "/Tmpfs").size() == profile.writable_paths.size(), "writable places");
  for (const json& options : At(host, "/Tmpfs")) {
    for (const char* word : {",nosuid", ",nodev", ",size=", ",nr_inodes="})
      out.Require(options.get<std::string>().find(word) != std::string::npos, word);
  }
  for (const json& mount : At(host, "/Mounts")) {
    out.Require(mount["Type"] == "volume", "no path of the host");
    out.Require(mount["ReadOnly"] == true, "workspace read-only");
  }
  return out.Take();
}

struct Mutation {
  std::string name;
  std::function<void(json&)> apply;
};

// Every scalar and list member that a linter may check: each is removed once, and true and false are swapped.
void CollectRemovals(const json& at, const std::string& path, std::vector<Mutation>& mutations) {
  if (at.is_object()) {
    for (const auto& [key, member] : at.items()) CollectRemovals(member, path + "/" + key, mutations);
  } else if (at.is_array()) {
    for (size_t i = 0; i < at.size(); ++i) CollectRemovals(at[i], path + "/" + std::to_string(i), mutations);
  }
  if (at.is_boolean()) {
    mutations.push_back({"swap " + path, [path](json& document) {
                           json& value = document[json::json_pointer(path)];
                           value = !value.get<bool>();
                         }});
  }
}

void Remove(json& document, const std::string& path) {
  const json::json_pointer pointer(path);
  json& parent = document[pointer.parent_pointer()];
  if (parent.is_array())
    parent.erase(std::stoul(pointer.back()));
  else
    parent.erase(pointer.back());
}

Mutation Without(const std::string& path) {
  return {"without " + path, [path](json& document) { Remove(document, path); }};
}
Mutation With(const std::string& path, json value) {
  return {"with " + path + "=" + value.dump(),
          [path, value](json& document) { document[json::json_pointer(path)] = value; }};
}

using Lint = std::vector<std::string> (*)(const json&, const Profile&);

void ExpectEachIsNoticed(Lint lint, const json& document, const Profile& profile, std::vector<Mutation> mutations) {
  ASSERT_EQ(lint(document, profile), std::vector<std::string>());
  CollectRemovals(document, "", mutations);
  for (const Mutation& mutation : mutations) {
    json changed = document;
    mutation.apply(changed);
    ASSERT_NE(changed, document) << mutation.name;
    EXPECT_NE(lint(changed, profile), std::vector<std::string>()) << mutation.name;
  }
}

TEST(Lint, Oci) {
  for (const char* name : kProfiles) {
    SCOPED_TRACE(name);
    const Profile profile = Named(name);
    const json document = json::parse(Rendered("oci", profile));
    std::vector<Mutation> mutations = {
        Without("/root/readonly"),
        Without("/process/noNewPrivileges"),
        With("/process/user/uid", 0),
        With("/process/user/gid", 0),
        With("/process/user/additionalGids", {0}),
        With("/hooks", {{"prestart", json::array()}}),
        Without("/linux/seccomp"),
        With("/linux/seccomp/defaultAction", "SCMP_ACT_ALLOW"),
        With("/linux/seccomp/architectures", {"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"}),
        Without("/linux/seccomp/flags"),
        Without("/linux/maskedPaths"),
        Without("/linux/readonlyPaths"),
        With("/linux/cgroupsPath", "/"),
        With("/linux/sysctl", {{"kernel.core_pattern", "x"}}),
        With("/linux/devices", json::array({{{"path", "/dev/mem"}}})),
        With("/linux/rootfsPropagation", "shared"),
        With("/linux/resources/memory/limit", -1),
        With("/linux/resources/memory/swap", -1),
        With("/linux/resources/pids/limit", -1),
        With("/linux/resources/cpu/quota", -1),
        Without("/linux/resources/cpu"),
        Without("/linux/resources/devices"),
        With("/linux/uidMappings/0/hostID", 0),
        With("/linux/gidMappings/0/hostID", 0),
        Without("/linux/uidMappings"),
    };
    for (const char* set : {"bounding", "effective", "inheritable", "permitted", "ambient"})
      mutations.push_back(With(std::string("/process/capabilities/") + set, {"CAP_SYS_ADMIN"}));
    for (size_t i = 0; i < document["linux"]["namespaces"].size(); ++i) {
      const std::string path = "/linux/namespaces/" + std::to_string(i);
      mutations.push_back(Without(path));
      mutations.push_back(With(path + "/path", "/proc/1/ns/x"));
    }
    for (const char* list : {"/linux/maskedPaths", "/linux/readonlyPaths", "/process/rlimits"}) {
      for (size_t i = 0; i < document[json::json_pointer(list)].size(); ++i)
        mutations.push_back(Without(std::string(list) + "/" + std::to_string(i)));
    }
    for (size_t i = 0; i < document["mounts"].size(); ++i) {
      const std::string options = "/mounts/" + std::to_string(i) + "/options";
      for (size_t j = 0; j < document["mounts"][i]["options"].size(); ++j) {
        const std::string option = document["mounts"][i]["options"][j];
        for (const char* wall :
             {"rro", "ro", "nosuid", "rnosuid", "nodev", "rnodev", "size=", "nr_inodes=", "subset="}) {
          const bool exact = std::string(wall).back() != '=';
          if (document["mounts"][i]["destination"] == "/dev" && std::string(wall) != "nosuid") continue;
          if (document["mounts"][i]["type"] == "proc" && std::string(wall) != "ro" && std::string(wall) != "subset=")
            continue;
          if (exact ? option == wall : option.rfind(wall, 0) == 0)
            mutations.push_back(Without(options + "/" + std::to_string(j)));
        }
      }
    }
    ExpectEachIsNoticed(LintOci, document, profile, std::move(mutations));
  }
}

TEST(Lint, Docker) {
  for (const char* name : kProfiles) {
    SCOPED_TRACE(name);
    const Profile profile = Named(name);
    const json document = json::parse(Rendered("docker", profile));
    std::vector<Mutation> mutations = {
        With("/Image", "debian:12"),
        Without("/Entrypoint"),
        Without("/Healthcheck"),
        With("/User", "root"),
        Without("/WorkingDir"),
        With("/HostConfig/Binds", {"/:/host"}),
        Without("/HostConfig/SecurityOpt/0"),
        Without("/HostConfig/SecurityOpt/1"),
        With("/HostConfig/SecurityOpt/1", "seccomp=unconfined"),
        With("/HostConfig/CapAdd", {"SYS_ADMIN"}),
        With("/HostConfig/Devices", json::array({{{"PathOnHost", "/dev/mem"}}})),
        With("/HostConfig/Mounts/0/Type", "bind"),
        Without("/HostConfig/Tmpfs/~1scratch"),
        With("/HostConfig/Tmpfs/~1scratch", "rw"),
        Without("/HostConfig/Ulimits/0"),
        Without("/HostConfig/LogConfig/Config/max-size"),
    };
    for (const char* key : {"NetworkMode", "PidMode", "UTSMode", "UsernsMode", "IpcMode", "CgroupnsMode"})
      mutations.push_back(With(std::string("/HostConfig/") + key, "host"));
    for (const char* key : {"Memory", "MemorySwap", "PidsLimit", "NanoCpus", "CapDrop", "MaskedPaths", "ReadonlyPaths"})
      mutations.push_back(Without(std::string("/HostConfig/") + key));
    for (const char* list : {"/HostConfig/MaskedPaths", "/HostConfig/ReadonlyPaths"}) {
      for (size_t i = 0; i < document[json::json_pointer(list)].size(); ++i)
        mutations.push_back(Without(std::string(list) + "/" + std::to_string(i)));
    }
    // Not walls: the initial contents of a volume, and whether the container is kept for inspection.
    json judged = document;
    judged["HostConfig"]["Mounts"][0].erase("VolumeOptions");
    for (const char* key : {"AutoRemove"}) judged["HostConfig"].erase(key);
    judged.erase("Tty");
    judged.erase("OpenStdin");
    ExpectEachIsNoticed(LintDocker, judged, profile, std::move(mutations));
  }
}

std::set<std::string> KeysThatDiffer(const json& one, const json& other) {
  std::set<std::string> keys;
  for (const json* document : {&one, &other}) {
    for (const auto& [key, value] : document->items()) {
      if (one.value(key, json()) != other.value(key, json())) keys.insert(key);
    }
  }
  return keys;
}

// docs/operator/runtimes.md lists these differences and gives their reasons.
TEST(Render, TheContainerOfARunDiffersFromTheRenderingOnlyWhereItIsSaid) {
  for (const char* name : kProfiles) {
    const Profile profile = Named(name);
    EngineContainer container;
    container.image = "sha256:0";
    container.present = {"/usr"};
    container.mounts = {{"/run/x/0", "/etc/passwd", false}, {"/run/x/1", "/data", true}};
    container.masked = {"/usr/lib32"};
    container.workspace_bytes = 4096;
    container.user_id = 1879080000;
    container.labels = {{"org.caisson.owner", "me"}};
    const json rendered = json::parse(*render::Docker(profile));
    const json run = json::parse(*render::DockerContainer(profile, container));
    EXPECT_EQ(KeysThatDiffer(rendered, run),
              (std::set<std::string>{"AttachStderr", "AttachStdin", "AttachStdout", "Cmd", "Entrypoint", "HostConfig",
                                     "Image", "Labels", "OpenStdin", "StdinOnce", "User", "WorkingDir"}));
    EXPECT_EQ(KeysThatDiffer(rendered["HostConfig"], run["HostConfig"]),
              (std::set<std::string>{"LogConfig", "MaskedPaths", "Mounts", "Runtime", "SecurityOpt", "Sysctls", "Tmpfs",
                                     "Ulimits"}));
    EXPECT_EQ(run["User"], "1879080000:1879080000");
    EXPECT_EQ(run["HostConfig"]["SecurityOpt"], json::array({"no-new-privileges=true", "seccomp=unconfined"}));
    for (const json& mount : run["HostConfig"]["Mounts"]) {
      EXPECT_EQ(mount["Type"], "bind");
      EXPECT_EQ(mount["ReadOnly"], mount["Target"] != "/data") << mount;
    }
    for (const json& path : rendered["HostConfig"]["MaskedPaths"]) {
      const json& masked = run["HostConfig"]["MaskedPaths"];
      EXPECT_NE(std::find(masked.begin(), masked.end(), path), masked.end()) << path;
    }
  }
}

// The Job that is sent has the walls of the Job that is printed.
TEST(Render, TheJobOfARun) {
  Profile profile = Named("balanced");
  PodRun run;
  run.name = "caisson-0123";
  run.image = "example.org/agent@sha256:00";
  run.pull_policy = "Never";
  run.labels = {{"caisson.org/owner", "1.2"}};
  run.workspace_bytes = 4096;
  run.deadline_seconds = 240;
  const json job = json::parse(render::KubernetesJob(profile, run));
  const json& pod = job["spec"]["template"]["spec"];
  const json& container = pod["containers"][0];
  EXPECT_EQ(job["metadata"]["labels"]["caisson.org/owner"], "1.2");
  EXPECT_EQ(pod["activeDeadlineSeconds"], 240);
  EXPECT_GT(job["spec"]["activeDeadlineSeconds"], 240);
  EXPECT_EQ(job["spec"]["backoffLimit"], 0);
  EXPECT_EQ(container["command"], json::array({kAgentInside}));
  EXPECT_EQ(container["env"], json::array());
  EXPECT_EQ(container["stdinOnce"], true);
  EXPECT_EQ(container["securityContext"]["capabilities"]["drop"], json::array({"ALL"}));
  EXPECT_EQ(container["resources"]["limits"]["memory"], std::to_string(profile.limits.memory_bytes));
  EXPECT_EQ(container["resources"]["requests"]["memory"], std::to_string(profile.limits.memory_bytes));
  EXPECT_EQ(container["resources"]["requests"]["cpu"], std::to_string(profile.limits.cpu_millis / 10) + "m");
  EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  for (const char* off : {"automountServiceAccountToken", "enableServiceLinks", "hostNetwork", "hostUsers"})
    EXPECT_EQ(pod[off], false) << off;
  for (const json& volume : pod["volumes"]) EXPECT_EQ(volume["emptyDir"]["medium"], "Memory") << volume;
  run.seccomp_profile = "caisson/agent.json";
  run.runtime_class = "kata";
  const json other = json::parse(render::KubernetesJob(profile, run))["spec"]["template"]["spec"];
  EXPECT_EQ(other["securityContext"]["seccompProfile"]["localhostProfile"], "caisson/agent.json");
  EXPECT_EQ(other["runtimeClassName"], "kata");
}

}  // namespace
}  // namespace caisson::policy
