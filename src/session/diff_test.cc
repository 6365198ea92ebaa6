#include "session/diff.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "session/flags.h"
#include "support/session_project.h"

namespace caisson::session {
namespace {

class DiffTest : public SessionProject {
 protected:
  // Each change by its path: "flags/refusal".
  static std::map<std::string, std::string> Marks(const Diff& diff) {
    std::map<std::string, std::string> marks;
    for (const Change& change : diff.changes) {
      marks[change.path] = FlagNames(change.flags) + "/" + kRefusalNames[static_cast<size_t>(change.refused)];
    }
    return marks;
  }

  // What a validator that shares no code with the program says of the diff's JSON: 0 if it is valid.
  int Validate(const Diff& diff) {
    std::ofstream(root_ / "diff.json") << DiffToJson(diff);
    const std::string command =
        "/usr/bin/python3 -B -W ignore -c 'import json, sys, jsonschema\n"
        "schema, document = (json.load(open(name, encoding=\"utf-8\")) for name in sys.argv[1:])\n"
        "jsonschema.Draft202012Validator(schema).validate(document)' " CAISSON_TEST_CORPUS
        "/../../../schemas/session_diff.schema.json '" +
        (root_ / "diff.json").string() + "'";
    return std::system(command.c_str());
  }

  // The diff of a hand-made upper directory of an overlay.
  Diff OverlayDiff(const fs::path& upper) {
    UniqueFd fd(::open(upper.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto diff = ComputeDiff(project_fd_.get(), {fd.get(), nullptr});
    EXPECT_TRUE(diff) << diff.error().message;
    return diff ? *std::move(diff) : Diff();
  }
};

bool SetAttribute(const fs::path& path, const char* name, const std::string& value) {
  return ::setxattr(path.c_str(), name, value.data(), value.size(), 0) == 0;
}

TEST_F(DiffTest, EachFlagOnce) {
  Write(project() / "setid", "x");
  ASSERT_EQ(::chmod((project() / "setid").c_str(), 04755), 0);
  Write(project() / "linked", "x");
  fs::create_hard_link(project() / "linked", project() / "other-name");
  Write(project() / "package.json", R"({"name": "a", "scripts": {"test": "true"}})");
  Write(project() / "web/package.json", R"({"name": "a", "scripts": {"test": "true"}})");
  Begin();
  Write(copy() / "setid", "y");
  ASSERT_EQ(::chmod((copy() / "setid").c_str(), 0755), 0);
  Write(copy() / "linked", "y");
  Write(copy() / "package.json", R"({"name": "a", "scripts": {"test": "true", "postinstall": "evil"}})");
  Write(copy() / "web/package.json", R"({"name": "b", "scripts": {"test": "true"}})");
  Write(copy() / "run", "#!/bin/sh\n");
  ASSERT_EQ(::chmod((copy() / "run").c_str(), 0755), 0);
  fs::create_symlink("../../etc", copy() / "d/out");
  fs::create_symlink("../kept", copy() / "d/in");
  for (const char* path : {".gitmodules", ".githooks/pre-push", ".ENVRC", ".vscode/tasks.json", "d/AGENTS.md",
                           ".github/workflows/ci.yml", "d/setup.py", "bare/HEAD", "bare/config", "plain"}) {
    Write(copy() / path, "x");
  }
  fs::create_directory(copy() / "bare/objects");
  fs::create_directory(copy() / "bare/refs");
  const Diff diff = MakeDiff();
  auto marks = Marks(diff);
  const std::map<std::string, std::string> expected = {{"run", "executable_gained/"},
                                                       {"d/out", "link_leaves_tree/"},
                                                       {"d/in", "/"},
                                                       {".gitmodules", "git/"},
                                                       {"bare", "/"},
                                                       {"bare/HEAD", "bare_repository/"},
                                                       {"bare/config", "bare_repository/"},
                                                       {"bare/objects", "bare_repository/"},
                                                       {"bare/refs", "bare_repository/"},
                                                       {".githooks", "hook/"},
                                                       {".githooks/pre-push", "hook/"},
                                                       {".ENVRC", "environment_file/"},
                                                       {".vscode", "editor/"},
                                                       {".vscode/tasks.json", "editor/"},
                                                       {"d/AGENTS.md", "agent_configuration/"},
                                                       {".github", "/"},
                                                       {".github/workflows", "ci/"},
                                                       {".github/workflows/ci.yml", "ci/"},
                                                       {"d/setup.py", "package_script/"},
                                                       {"package.json", "package_script/"},
                                                       {"web/package.json", "/"},
                                                       {"setid", "set_id_dropped/"},
                                                       {"linked", "hard_link_split/"},
                                                       {"plain", "/"}};
  EXPECT_EQ(marks, expected);
  std::set<ChangeFlag> seen;
  for (const Change& change : diff.changes) seen.insert(change.flags.begin(), change.flags.end());
  EXPECT_EQ(seen.size(), kChangeFlagNames.size());
  EXPECT_EQ(Validate(diff), 0);
}

TEST_F(DiffTest, TheJsonOfEveryKindIsValid) {
  Work();
  EXPECT_EQ(Validate(MakeDiff()), 0);
  EXPECT_EQ(Validate(Diff()), 0);
  Diff wrong = MakeDiff();
  wrong.changes[0].path.clear();
  EXPECT_NE(Validate(wrong), 0);  // the validator can refuse
}

TEST_F(DiffTest, NamesThatAreNotUtf8AreExactInTheJson) {
  Write(copy() / "a\xff", "x");
  fs::create_symlink("\xfe\xfd", copy() / "b");
  Write(copy() / "c\n\x1b\"\xc3\xa9", "x");
  const Diff diff = MakeDiff();
  EXPECT_EQ(Validate(diff), 0);
  const nlohmann::json document = nlohmann::json::parse(DiffToJson(diff));
  const nlohmann::json& changes = document["changes"];
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0]["path"], "a\xef\xbf\xbd");
  EXPECT_EQ(changes[0]["path_base64"], "Yf8=");
  EXPECT_EQ(changes[1]["path"], "b");
  EXPECT_FALSE(changes[1].contains("path_base64"));
  EXPECT_EQ(changes[1]["after"]["link_target_base64"], "/v0=");
  EXPECT_EQ(changes[2]["path"], "c\n\x1b\"\xc3\xa9");
  EXPECT_FALSE(changes[2].contains("path_base64"));
  EXPECT_EQ(DiffToJson(diff).find('\n'), std::string::npos);
}

Diff FixedDiff() {
  Change edited;
  edited.path = "a b";
  edited.kind = ChangeKind::kModified;
  edited.before = {EntryType::kFile, 0644, 3, "", std::string(64, '0')};
  edited.after = {EntryType::kFile, 0755, 4, "", std::string(64, '1')};
  edited.flags = {ChangeFlag::kExecutableGained, ChangeFlag::kGit};
  Change link;
  link.path = "l";
  link.after = {EntryType::kLink, 0777, 4, "/etc", ""};
  link.flags = {ChangeFlag::kLinkLeavesTree};
  link.refused = Refusal::kGit;
  link.host_removed = true;
  Diff diff;
  diff.changes = {edited, link};
  return diff;
}

// Approvals outlive a version of the program: the form of docs/design/session-diff.md, computed apart from this code.
TEST(DiffDigest, IsTheDocumentedOne) {
  EXPECT_EQ(FixedDiff().Digest(), "7ae919e5faa3d8fb8c9d272f2457a3170e71e629a3916336190fa26442391831");
}

TEST(DiffDigest, CoversEveryMember) {
  const std::vector<std::function<void(Diff&)>> edits = {
      [](Diff&) {},
      [](Diff& diff) { diff.changes[0].path = "a  b"; },
      [](Diff& diff) { diff.changes[0].kind = ChangeKind::kMode; },
      [](Diff& diff) { diff.changes[0].before.type = EntryType::kFifo; },
      [](Diff& diff) { diff.changes[0].before.mode = 0600; },
      [](Diff& diff) { diff.changes[0].before.size = 5; },
      [](Diff& diff) { diff.changes[0].before.sha256[63] = '2'; },
      [](Diff& diff) { diff.changes[0].after.type = EntryType::kSocket; },
      [](Diff& diff) { diff.changes[0].after.mode = 0700; },
      [](Diff& diff) { diff.changes[0].after.size = 6; },
      [](Diff& diff) { diff.changes[0].after.sha256[0] = '2'; },
      [](Diff& diff) { diff.changes[0].flags.pop_back(); },
      [](Diff& diff) { diff.changes[0].refused = Refusal::kXattr; },
      [](Diff& diff) { diff.changes[1].after.link_target = "/etd"; },
      [](Diff& diff) { diff.changes[1].host_removed = false; },
      [](Diff& diff) { diff.changes.pop_back(); },
      [](Diff& diff) { std::swap(diff.changes[0], diff.changes[1]); },
      [](Diff& diff) { diff.changes.clear(); },
  };
  std::set<std::string> digests;
  for (const auto& edit : edits) {
    Diff diff = FixedDiff();
    edit(diff);
    digests.insert(diff.Digest());
  }
  EXPECT_EQ(digests.size(), edits.size());
}

TEST_F(DiffTest, TheDigestOfAnUnchangedTreeStays) {
  Work();
  const std::string digest = MakeDiff().Digest();
  EXPECT_EQ(MakeDiff().Digest(), digest);
  Write(copy() / "added", "Added\n");  // as long as before
  EXPECT_NE(MakeDiff().Digest(), digest);
}

TEST_F(DiffTest, SocketsAndDevicesAreRefused) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (copy() / "socket").c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  std::map<std::string, std::string> expected = {{"socket", "/socket"}};
  // The kernel lets every user make a device 0:0. In a copy it is no whiteout.
  ASSERT_EQ(::mknod((copy() / "kept2").c_str(), S_IFCHR | 0600, 0), 0);
  expected["kept2"] = "/device";
  if (::geteuid() == 0 && ::mknod((copy() / "null").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0) {
    expected["null"] = "/device";
  }
  fs::remove(copy() / "edited");
  ASSERT_EQ(::mkfifo((copy() / "edited").c_str(), 0600), 0);  // a reader of the host would wait for ever
  expected["edited"] = "/fifo";
  const Diff diff = MakeDiff();
  EXPECT_EQ(Marks(diff), expected);
  EXPECT_EQ(Validate(diff), 0);
  const auto before = Snapshot(project());
  const auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->refused.size(), expected.size());
  EXPECT_EQ(Snapshot(project()), before);
}

// As the kernel stores an ACL: version 2, then tag, permissions and id of each entry.
std::string AclThatNamesAUser() {
  const uint32_t version = 2, none = 0xffffffff;
  std::string acl(reinterpret_cast<const char*>(&version), 4);
  const auto add = [&](uint16_t tag, uint16_t permissions, uint32_t id) {
    acl.append(reinterpret_cast<const char*>(&tag), 2);
    acl.append(reinterpret_cast<const char*>(&permissions), 2);
    acl.append(reinterpret_cast<const char*>(&id), 4);
  };
  add(0x01, 6, none);
  add(0x02, 6, 1234);
  add(0x04, 4, none);
  add(0x10, 6, none);
  add(0x20, 4, none);
  return acl;
}

TEST_F(DiffTest, NewAttributesAreRefused) {
  Write(copy() / "attribute", "x");
  if (!SetAttribute(copy() / "attribute", "user.x", "y")) {
    if (MustRun("xattr")) FAIL() << "the file system of /tmp has no user attributes";
    GTEST_SKIP() << "SKIP: the file system of /tmp has no user attributes";
  }
  std::map<std::string, std::string> expected = {{"attribute", "/xattr"}};
  fs::create_directory(copy() / "dir");
  ASSERT_TRUE(SetAttribute(copy() / "dir", "user.x", "y"));
  Write(copy() / "dir/below", "x");
  expected["dir"] = "/xattr";
  expected["dir/below"] = "/inside_refused";
  ASSERT_TRUE(SetAttribute(copy() / "kept", "user.x", "y"));  // the host's file, its bytes as they were
  expected["kept"] = "/xattr";
  Write(copy() / "acl", "x");
  if (SetAttribute(copy() / "acl", "system.posix_acl_access", AclThatNamesAUser())) {
    expected["acl"] = "/xattr";
  } else {
    ASSERT_EQ(errno, ENOTSUP);
    expected["acl"] = "/";
  }
  if (::geteuid() == 0) {
    const uint32_t capability[5] = {0x02000001, 1U << 10, 0, 0, 0};  // version 2, effective; cap_net_bind_service
    Write(copy() / "capable", "x");
    if (SetAttribute(copy() / "capable", "security.capability",
                     std::string(reinterpret_cast<const char*>(capability), sizeof(capability)))) {
      expected["capable"] = "/xattr";
    } else {
      fs::remove(copy() / "capable");
    }
  }
  const Diff diff = MakeDiff();
  EXPECT_EQ(Marks(diff), expected);
  const auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  for (const auto& item : expected) {
    EXPECT_EQ(fs::exists(project() / item.first), item.first == "kept" || item.second == "/") << item.first;
  }
  EXPECT_LT(::getxattr((project() / "kept").c_str(), "user.x", nullptr, 0), 0);
}

TEST_F(DiffTest, AttributesOfTheHostAreKept) {
  if (!SetAttribute(project() / "edited", "user.host", "h")) {
    if (MustRun("xattr")) FAIL() << "the file system of /tmp has no user attributes";
    GTEST_SKIP() << "SKIP: the file system of /tmp has no user attributes";
  }
  Begin();
  Write(copy() / "edited", "session\n");
  const auto report = DoApply(MakeDiff());
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_TRUE(report->applied);
  char value[8];
  EXPECT_EQ(::getxattr((project() / "edited").c_str(), "user.host", value, sizeof(value)), 1);
}

// Since Linux 6.7 a whiteout may also be an empty file with an attribute, in a directory that says so.
TEST_F(DiffTest, AttributeWhiteouts) {
  const fs::path upper = root_ / "upper";
  Write(upper / "d/other", "");
  if (!SetAttribute(upper / "d", "user.overlay.opaque", "x")) {
    if (MustRun("xattr")) FAIL() << "the file system of /tmp has no user attributes";
    GTEST_SKIP() << "SKIP: the file system of /tmp has no user attributes";
  }
  ASSERT_TRUE(SetAttribute(upper / "d/other", "user.overlay.whiteout", ""));
  Write(upper / "d/full", "x");
  ASSERT_TRUE(SetAttribute(upper / "d/full", "user.overlay.whiteout", ""));  // has bytes: none
  Write(upper / "kept", "");
  ASSERT_TRUE(SetAttribute(upper / "kept", "user.overlay.whiteout", ""));  // in a directory that does not say so
  ASSERT_EQ(::mknod((upper / "gone").c_str(), S_IFCHR, 0), 0);             // the older form
  std::map<std::string, std::string> kinds;
  for (const Change& change : OverlayDiff(upper).changes) {
    kinds[change.path] = kChangeKindNames[static_cast<size_t>(change.kind)];
  }
  EXPECT_EQ(kinds, (std::map<std::string, std::string>{
                       {"d/other", "deleted"}, {"d/full", "added"}, {"kept", "modified"}, {"gone", "deleted"}}));
  ASSERT_TRUE(SetAttribute(upper / "d", "user.overlay.opaque", "y"));
  kinds.clear();
  for (const Change& change : OverlayDiff(upper).changes) {
    kinds[change.path] = kChangeKindNames[static_cast<size_t>(change.kind)];
  }
  EXPECT_EQ(kinds["d/deep/file"], "deleted");  // an opaque directory hides everything of the host
  EXPECT_EQ(kinds["d/other"], "modified");
}

TEST_F(DiffTest, RedirectsAndFilesWithoutBytesAreErrors) {
  for (const char* mark : {"user.overlay.redirect", "user.overlay.metacopy"}) {
    const bool file = std::strcmp(mark, "user.overlay.metacopy") == 0;
    const fs::path upper = root_ / "upper";
    fs::remove_all(upper);
    fs::create_directories(upper / "d");
    if (file) Write(upper / "kept", "");
    if (!SetAttribute(upper / (file ? "kept" : "d"), mark, "/")) {
      if (MustRun("xattr")) FAIL() << "the file system of /tmp has no user attributes";
      GTEST_SKIP() << "SKIP: the file system of /tmp has no user attributes";
    }
    UniqueFd fd(::open(upper.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto diff = ComputeDiff(project_fd_.get(), {fd.get(), nullptr});
    ASSERT_FALSE(diff) << mark;
    EXPECT_EQ(diff.error().kind, ErrorKind::kUnsupported) << mark;
  }
}

// git runs what its configuration names. The same tree, used as it is, shows that these settings would run.
TEST_F(DiffTest, GitConfigurationNeverReachesTheHost) {
  const auto git = [&](const fs::path& where, const std::string& arguments) {
    return std::system(("cd '" + where.string() + "' && GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null HOME=/ git " +
                        arguments + " >/dev/null 2>&1")
                           .c_str());
  };
  ASSERT_EQ(git(project(), "init"), 0);
  Begin();
  std::ofstream(copy() / ".git/config", std::ios::app)
      << "[core]\n\tfsmonitor = \"touch " << (root_ / "monitored").string() << "; false\"\n"
      << "[filter \"x\"]\n\tclean = \"touch " << (root_ / "filtered").string() << "; cat\"\n";
  Write(copy() / ".gitattributes", "* filter=x\n");
  EXPECT_EQ(git(copy(), "add -A"), 0);
  ASSERT_TRUE(fs::exists(root_ / "monitored") && fs::exists(root_ / "filtered"));
  fs::remove(root_ / "monitored");
  fs::remove(root_ / "filtered");

  Write(copy() / "sub/.git", "gitdir: ../evil\n");
  Write(copy() / "sub/file", "x");
  Write(copy() / "d/.GIT/config", "x");  // on a file system that ignores case this is .git
  const Diff diff = MakeDiff();
  auto marks = Marks(diff);
  EXPECT_EQ(marks[".git/config"], "git/git");
  EXPECT_EQ(marks["sub/.git"], "git/git");
  EXPECT_EQ(marks["d/.GIT/config"], "git/git");
  EXPECT_EQ(marks[".gitattributes"], "git/");
  EXPECT_EQ(marks["sub/file"], "/");
  const std::string config = Read(project() / ".git/config");
  const auto report = DoApply(diff);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->paths, (std::vector<std::string>{".gitattributes", "sub", "sub/file"}));
  EXPECT_EQ(Read(project() / ".git/config"), config);
  EXPECT_EQ(git(project(), "add -A"), 0);
  EXPECT_FALSE(fs::exists(root_ / "monitored") || fs::exists(root_ / "filtered"));
}

}  // namespace
}  // namespace caisson::session
