#include "policy/path_policy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

namespace caisson::policy {
namespace {

class PathPolicyTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-policy-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = std::filesystem::canonical(path);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Make(const std::string& directory) {
    std::filesystem::create_directories(root_ / directory);
    return root_ / directory;
  }

  std::filesystem::path root_;
};

// The rule that refuses the path, or "".
std::string Refused(const std::string& path, Access wanted = Access::kReadOnly, const PathRules& rules = {}) {
  const Result<JudgedPath> judged = OpenJudged(path, wanted, rules);
  return judged ? "" : judged.error().message;
}

#define EXPECT_REFUSED(said, words) EXPECT_NE((said).find(words), std::string::npos) << (said)

ErrorKind KindOf(const std::string& path) {
  const Result<JudgedPath> judged = OpenJudged(path);
  EXPECT_FALSE(judged) << path;
  return judged ? ErrorKind::kSystem : judged.error().kind;
}

TEST_F(PathPolicyTest, OpensWhatIsHarmless) {
  std::filesystem::create_directory(root_ / "project");
  const Result<JudgedPath> judged = OpenJudged(root_ / "project/../project/.");
  ASSERT_TRUE(judged) << judged.error().message;
  EXPECT_EQ(judged->canonical, (root_ / "project").string());
  EXPECT_TRUE(judged->is_directory);
}

TEST_F(PathPolicyTest, RefusesSensitivePlacesHoweverSpelt) {
  for (const char* path :
       {"/", "/etc", "/etc/passwd", "/proc", "/proc/self", "/sys", "/dev", "/dev/null", "/run", "//etc//",
        "/usr/../etc", "/proc/self/root", "/proc/self/cwd", "/dev/fd/0", "/var", "/var/run"}) {
    EXPECT_EQ(KindOf(path), ErrorKind::kDenied) << path;
  }
}

TEST_F(PathPolicyTest, RefusesAnotherProcessesRoot) {
  EXPECT_FALSE(OpenJudged("/proc/1/root/etc"));  // as a magic link, or as another process's
}

TEST_F(PathPolicyTest, JudgesTheTargetOfALink) {
  std::filesystem::create_symlink("/etc", root_ / "innocent");
  EXPECT_EQ(KindOf(root_ / "innocent"), ErrorKind::kDenied);
  std::filesystem::create_directory(root_ / "real");
  std::filesystem::create_symlink(root_ / "real", root_ / "link");
  const Result<JudgedPath> judged = OpenJudged(root_ / "link");
  ASSERT_TRUE(judged);
  EXPECT_EQ(judged->canonical, (root_ / "real").string());
}

TEST_F(PathPolicyTest, LookAlikesAreNotTheSensitivePlace) {
  std::filesystem::create_directory(root_ / "etc");
  EXPECT_TRUE(OpenJudged(root_ / "etc"));
}

TEST_F(PathPolicyTest, RefusesCredentialsAndTheirHome) {
  std::filesystem::create_directories(root_ / "home/.ssh");
  EXPECT_EQ(KindOf(root_ / "home"), ErrorKind::kDenied);
  EXPECT_EQ(KindOf(root_ / "home/.ssh"), ErrorKind::kDenied);
}

TEST_F(PathPolicyTest, RefusesWhatIsNeitherFileNorDirectory) {
  ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(KindOf(root_ / "fifo"), ErrorKind::kDenied);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  const std::string path = root_ / "engine.sock";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(KindOf(path), ErrorKind::kDenied);
  ::close(fd);
}

TEST_F(PathPolicyTest, NamesWhatIsNotThere) {
  EXPECT_EQ(KindOf(root_ / "missing"), ErrorKind::kInvalid);
  EXPECT_EQ(KindOf(""), ErrorKind::kInvalid);
  EXPECT_EQ(KindOf(std::string("/tmp\0/etc", 9)), ErrorKind::kInvalid);
}

TEST_F(PathPolicyTest, SpellingIsNoDisguise) {
  const std::string real = Make("ws/in");
  std::filesystem::create_symlink(root_ / "ws", root_ / "link");
  std::filesystem::create_symlink("link", root_ / "chain");
  for (const char* spelling :
       {"ws/in", "ws//in/", "ws/./in", "ws/in/../in", "link/in", "chain/in/.", "link/../ws/in"}) {
    const Result<JudgedPath> judged = OpenJudged(root_ / spelling);
    ASSERT_TRUE(judged) << judged.error().message;
    EXPECT_EQ(judged->canonical, real) << spelling;
  }
  std::filesystem::create_symlink("/", root_ / "host");
  for (const char* spelling : {"host", "host/etc", "host//etc/ssl/..", "ws/../host/etc/passwd", "link/../../../etc"})
    EXPECT_EQ(KindOf(root_ / spelling), ErrorKind::kDenied) << spelling;
  std::filesystem::create_symlink("loop", root_ / "loop");
  EXPECT_EQ(KindOf(root_ / "loop"), ErrorKind::kDenied);
}

TEST_F(PathPolicyTest, RelativePathsAreJudgedByWhereTheyLead) {
  Make("ws");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(root_);
  const Result<JudgedPath> judged = OpenJudged("ws");
  EXPECT_TRUE(judged && judged->canonical == (root_ / "ws").string());
  for (const char* path : {"../../etc", "../..", "ws/../../../etc/passwd"}) EXPECT_EQ(KindOf(path), ErrorKind::kDenied);
  std::filesystem::current_path(before);
}

TEST_F(PathPolicyTest, MagicLinksLeadNowhere) {
  const std::string ws = Make("ws");
  const int fd = ::open(ws.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::string number = std::to_string(fd), pid = std::to_string(::getpid());
  for (const std::string& path : std::vector<std::string>{
           "/proc/self/root" + ws, "/proc/self/root/usr", "/proc/thread-self/root/usr", "/proc/self/cwd/.",
           "/proc/" + pid + "/cwd", "/proc/" + pid + "/root/usr", "/proc/" + pid + "/exe", "/dev/fd/" + number,
           "/dev/fd/" + number + "/.", "/proc/self/fd/" + number, "/proc/self/task/" + pid + "/fd/" + number,
           "/dev/stdin", "/proc/1/cwd"}) {
    EXPECT_FALSE(OpenJudged(path)) << path;
  }
  // A link that the user created does not help either.
  std::filesystem::create_symlink("/proc/self/root/usr", root_ / "innocent");
  EXPECT_EQ(KindOf(root_ / "innocent"), ErrorKind::kDenied);
  ::close(fd);
}

TEST_F(PathPolicyTest, RefusesParentsOfSensitivePlaces) {
  for (const char* path : {"/", "/var", "/var/lib", "/proc/sys", "/sys/kernel", "/dev/shm", "/run/lock"}) {
    if (std::filesystem::exists(path)) {
      EXPECT_EQ(KindOf(path), ErrorKind::kDenied) << path;
    }
  }
  for (const char* path : {"/usr/share", "/opt", "/srv", "/var/log"}) {
    if (std::filesystem::exists(path)) {
      EXPECT_EQ(Refused(path), "") << path;
    }
  }
}

TEST_F(PathPolicyTest, SensitivePlacesNeedAnOverrideOfTheirOwn) {
  const std::string home = Make("home");
  const std::string keys = Make("home/.ssh");
  const auto granting = [](Grant grant) {
    Override one;
    one.id = "o";
    one.role = "r";
    one.grant = std::move(grant);
    one.expires_at = 1;
    return Grants({one}, "r", "", 0);
  };
  const auto refused = [&](const std::string& path, Access wanted, Grant grant, const ProjectPaths* project = nullptr) {
    Grants grants = granting(std::move(grant));
    const std::string said = Refused(path, wanted, {project, &grants});
    EXPECT_EQ(said.empty(), !grants.used().empty());  // a grant that was needed is noted, and no other
    return said;
  };
  EXPECT_EQ(refused(keys, Access::kReadOnly, SensitivePath{keys, Access::kReadOnly}), "");
  EXPECT_EQ(refused(home, Access::kReadOnly, SensitivePath{home, Access::kReadOnly}), "");
  EXPECT_EQ(refused("/etc", Access::kReadWrite, SensitivePath{"/etc", Access::kReadWrite}), "");
  EXPECT_REFUSED(refused(keys, Access::kReadWrite, SensitivePath{keys, Access::kReadOnly}), "credentials in .ssh");
  EXPECT_REFUSED(refused(keys, Access::kReadOnly, SensitivePath{home, Access::kReadOnly}), "credentials in .ssh");
  EXPECT_REFUSED(refused(home, Access::kReadOnly, SensitivePath{keys, Access::kReadOnly}), "contains credentials");
  EXPECT_REFUSED(refused("/etc/ssl", Access::kReadOnly, SensitivePath{"/etc", Access::kReadOnly}), "below /etc");
  EXPECT_REFUSED(refused(keys, Access::kReadWrite, WritePath{"/"}), "credentials in .ssh");
  // A project cannot allow what is sensitive.
  const ProjectPaths project{"/", {{keys, Access::kReadWrite}}, {}};
  EXPECT_REFUSED(Refused(keys, Access::kReadOnly, {&project, nullptr}), "credentials in .ssh");
}

TEST_F(PathPolicyTest, WritingNeedsToBeNamed) {
  const std::string ws = Make("ws"), other = Make("ws2");
  EXPECT_EQ(Refused(ws, Access::kCopyOnWrite), "");
  EXPECT_REFUSED(Refused(ws, Access::kReadWrite), "writing to the host");
  Override one;
  one.role = "r";
  one.grant = WritePath{ws};
  one.expires_at = 1;
  Grants grants({one}, "r", "", 0);
  EXPECT_EQ(Refused(ws, Access::kReadWrite, {nullptr, &grants}), "");
  EXPECT_REFUSED(Refused(other, Access::kReadWrite, {nullptr, &grants}), "writing to the host");
  EXPECT_REFUSED(Refused(root_, Access::kReadWrite, {nullptr, &grants}), "writing to the host");
}

TEST_F(PathPolicyTest, AProjectAllowsWhatItLists) {
  for (const char* directory : {"p/src/deep", "p/src/private/open", "p/out", "p/.git", "ws", "ws2", "ws/in"})
    Make(directory);
  std::filesystem::create_symlink(root_ / "p/src", root_ / "alias");
  std::filesystem::create_symlink(root_ / "p/.git", root_ / "p/src/git");
  const ProjectPaths project{root_ / "p",
                             {{"src", Access::kReadOnly},
                              {"src/private/open", Access::kCopyOnWrite},
                              {"out", Access::kReadWrite},
                              {root_ / "ws", Access::kReadWrite},
                              {"missing", Access::kReadWrite}},
                             {"src/private", ".git", root_ / "ws/in"}};
  struct Case {
    const char* path;
    Access wanted;
    const char* refusal;
  };
  for (const auto& [path, wanted, refusal] : {
           Case{"p/src", Access::kReadOnly, "contains src/private of denied_paths"},
           Case{"p/src/deep", Access::kReadOnly, nullptr},
           Case{"alias/deep", Access::kReadOnly, nullptr},
           Case{"p/src/deep", Access::kCopyOnWrite, "allowed_paths has src with access ro, not cow"},
           Case{"p/src/private", Access::kReadOnly, "denied_paths has src/private"},
           Case{"p/src/private/open", Access::kCopyOnWrite, nullptr},  // the most specific wins
           Case{"p/src/private/open", Access::kReadWrite, "with access cow, not rw"},
           Case{"p/out", Access::kReadWrite, nullptr},
           Case{"p", Access::kReadOnly, "contains src/private of denied_paths"},
           Case{"p/.git", Access::kReadOnly, "denied_paths has .git"},
           Case{"p/src/git", Access::kReadOnly, "denied_paths has .git"},
           Case{"ws2", Access::kReadOnly, "no entry of allowed_paths covers it"},
           Case{"ws", Access::kReadWrite, "contains "},
           Case{"ws/in", Access::kReadOnly, "denied_paths has "},
           Case{"ws/../ws2", Access::kReadOnly, "no entry of allowed_paths covers it"},
       }) {
    const std::string said = Refused(root_ / path, wanted, {&project, nullptr});
    if (refusal == nullptr) {
      EXPECT_EQ(said, "") << path;
    } else {
      EXPECT_REFUSED(said, refusal);
    }
  }
}

TEST_F(PathPolicyTest, AtTheSamePathADenialWins) {
  const std::string ws = Make("ws");
  const ProjectPaths project{root_, {{"ws", Access::kReadWrite}}, {ws}};
  EXPECT_REFUSED(Refused(ws, Access::kReadOnly, {&project, nullptr}), "denied_paths has");
}

TEST_F(PathPolicyTest, AProjectMayAllowOrDenyFromTheRoot) {
  const std::string ws = Make("ws");
  const ProjectPaths all{"/", {{"/", Access::kReadOnly}}, {}};
  EXPECT_EQ(Refused(ws, Access::kReadOnly, {&all, nullptr}), "");
  EXPECT_REFUSED(Refused("/etc", Access::kReadOnly, {&all, nullptr}), "below /etc");
  const ProjectPaths none{"/", {{"/", Access::kReadOnly}}, {"/"}};
  EXPECT_REFUSED(Refused(ws, Access::kReadOnly, {&none, nullptr}), "denied_paths has /");
}

// Runs `body` in a private mount namespace, and returns the fault that it found.
std::string InOwnMounts(const std::function<std::string()>& body) {
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) return "pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said = "SKIP unshare";
    if (::unshare(::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) == 0) {
      said = ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? body() : "SKIP make mounts private";
    }
    if (::write(pipe_fds[1], said.data(), said.size()) < 0) ::_exit(1);
    ::_exit(0);
  }
  ::close(pipe_fds[1]);
  std::string said;
  char chunk[4096];
  for (ssize_t size = 0; (size = ::read(pipe_fds[0], chunk, sizeof(chunk))) > 0;)
    said.append(chunk, static_cast<size_t>(size));
  ::close(pipe_fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? said : said + " (the child died)";
}

TEST_F(PathPolicyTest, BindMountsAreTheirSource) {
  for (const char* directory :
       {"etc", "ssl", "outer/in", "real", "other", "secret/deep", "p/with/a/long/name/data", "ro"})
    Make(directory);
  std::ofstream(root_ / "file") << "x";
  const std::string said = InOwnMounts([this]() -> std::string {
    const auto bind = [this](const std::string& from, const char* to) {
      return ::mount(from.c_str(), (root_ / to).c_str(), nullptr, MS_BIND, nullptr) == 0;
    };
    if (!bind("/etc", "etc") || !bind("/etc/ssl", "ssl") || !bind("/etc", "outer/in") || !bind("/etc/passwd", "file") ||
        !bind(root_ / "real", "other") || !bind(root_ / "secret", "p/with/a/long/name/data") ||
        !bind(root_ / "real", "ro"))
      return std::string("SKIP bind mount: ") + std::strerror(errno);
    std::string wrong;
    const auto expect = [&](const char* path, const char* refusal, const PathRules& rules = {}) {
      const std::string answer = Refused(root_ / path, Access::kReadOnly, rules);
      if (*refusal == '\0' ? !answer.empty() : answer.find(refusal) == std::string::npos)
        wrong += std::string(path) + " is not refused because \"" + refusal + "\": " + answer + "\n";
    };
    expect("etc", "below /etc, as /etc");
    expect("ssl", "below /etc, as /etc/ssl");
    expect("file", "below /etc, as /etc/passwd");
    expect("outer", "contains the mount");
    expect("outer/in/ssl", "below /etc, as /etc/ssl");
    expect("other", "");
    // A long name that is allowed does not outweigh a short one that is denied.
    const ProjectPaths project{root_, {{"p/with/a/long/name", Access::kReadWrite}}, {"secret"}};
    expect("p/with/a/long/name/data", "denied_paths has secret", {&project, nullptr});
    expect("p/with/a/long/name/data/deep", "denied_paths has secret", {&project, nullptr});
    expect("p/with/a/long/name", "which lies in secret of denied_paths", {&project, nullptr});
    // Allowed by another name is allowed, with the least access of all names.
    const ProjectPaths named{root_, {{"real", Access::kReadOnly}, {"ro", Access::kReadWrite}}, {}};
    expect("other", "", {&named, nullptr});
    if (Refused(root_ / "ro", Access::kReadWrite, {&named, nullptr}).find("with access ro") == std::string::npos)
      wrong += "a second name widened the access\n";
    return wrong;
  });
  if (said.rfind("SKIP", 0) == 0) {
    const char* must = std::getenv("CAISSON_MUST_RUN");
    ASSERT_TRUE(must == nullptr || std::string(must).find("root") == std::string::npos) << said;
    GTEST_SKIP() << "*** NOT TESTED (root): " << said << " ***";
  }
  EXPECT_EQ(said, "");
}

TEST_F(PathPolicyTest, ExplainsWhatItWouldDo) {
  const std::string ws = Make("ws");
  EXPECT_EQ(ExplainPath(ws, Access::kReadOnly, {}), "allowed: " + ws + ": not a sensitive place");
  EXPECT_EQ(ExplainPath("/etc/ssl", Access::kReadOnly, {}), "refused: /etc/ssl: below /etc");
  EXPECT_EQ(ExplainPath("", Access::kReadOnly, {}).rfind("refused: ", 0), 0u);
}

}  // namespace
}  // namespace caisson::policy
