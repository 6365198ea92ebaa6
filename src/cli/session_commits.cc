// caisson session commits: brings commits that were made in a session into the project's repository.
//
// `.git` is never applied as files, because files there run programs (hooks, filters, fsmonitor). Commits travel as a
// bundle: git inside the sandbox packs them, and the user's git outside unpacks and checks them into refs of their own.
//
// SECURITY: the bundle is hostile bytes, read with fsck and never by name of anything inside it but refs, which git
// checks. No program outside looks at the session's tree. The repository is the user's own; hooks, file-system
// monitors, maintenance and recursion are off all the same, and the user's configuration is not read.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "linux/files.h"

namespace caisson::cli {

using nlohmann::ordered_json;

namespace {

constexpr size_t kMostTips = 500;  // of the project, which bound what has to travel
constexpr size_t kMostGitOutput = size_t{1} << 20;
constexpr int64_t kMostBundleBytes = int64_t{1} << 30;
constexpr char kBundleInside[] = "/scratch/.caisson-commits.bundle";

struct Finished {
  int exit_code = 0;
  std::string output;
};

// Runs the user's git on the repository, with nothing in its environment that could lead it elsewhere.
Result<Finished> RunGit(const std::string& repository, std::vector<std::string> arguments) {
  std::vector<std::string> words = {"git",
                                    "-c",
                                    "core.hooksPath=/dev/null",
                                    "-c",
                                    "core.fsmonitor=false",
                                    "-c",
                                    "core.alternateRefsCommand=true",
                                    "-c",
                                    "core.attributesFile=/dev/null",
                                    "-c",
                                    "transfer.fsckObjects=true",
                                    "-c",
                                    "fetch.fsckObjects=true",
                                    "-c",
                                    "gc.auto=0",
                                    "-c",
                                    "maintenance.auto=false",
                                    "-c",
                                    "submodule.recurse=false",
                                    "-c",
                                    "protocol.allow=never",
                                    "-c",
                                    "protocol.file.allow=always"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const char* path = ::getenv("PATH");
  std::vector<std::string> environment = {"PATH=" + std::string(path != nullptr ? path : "/usr/bin:/bin"),
                                          "GIT_DIR=" + repository,
                                          "GIT_CONFIG_NOSYSTEM=1",
                                          "GIT_CONFIG_GLOBAL=/dev/null",
                                          "GIT_TERMINAL_PROMPT=0",
                                          "GIT_OPTIONAL_LOCKS=0",
                                          "HOME=/nonexistent",
                                          "LC_ALL=C"};
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::System(errno, "make a pipe");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, theirs.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, theirs.get(), STDERR_FILENO);
  std::vector<char*> argv = pointers(words), envp = pointers(environment);
  pid_t child = -1;
  const int fault = ::posix_spawnp(&child, "git", &files, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&files);
  theirs.Reset();
  if (fault != 0) return Error::System(fault, "start git");
  Finished finished;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(ours.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (finished.output.size() < kMostGitOutput) finished.output.append(buffer, static_cast<size_t>(count));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return finished;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

bool IsObjectName(const std::string& word) {
  return (word.size() == 40 || word.size() == 64) && word.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The repository of the project, which must be the caller's own: its configuration is obeyed.
Result<std::string> FindRepository(const session::Record& record) {
  if (record.workspace.empty()) return Error::Invalid("the session has no project");
  const std::string repository = record.workspace + "/.git";
  struct stat info {};
  if (::lstat(repository.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return Error::Unsupported(EscapeForTerminal(repository) +
                              " is no repository of its own (a directory); commits cannot be brought there");
  if (info.st_uid != ::geteuid())
    return Error::Denied(EscapeForTerminal(repository) + " belongs to another user; run this command as that user");
  return repository;
}

// Git inside packs the commits that the project does not have. False: there are none.
Result<bool> PackInside(session::Client& client, const std::vector<std::string>& known) {
  session::CommandRequest request;
  request.argv = {"git",         "-c",         "safe.directory=/workspace", "bundle", "create", "--quiet",
                  kBundleInside, "--branches", "--ignore-missing"};
  if (!known.empty()) request.argv.push_back("--not");
  request.argv.insert(request.argv.end(), known.begin(), known.end());
  CAISSON_TRY(session::RemoteCommand command, client.Exec(request));
  command.input.Reset();
  const auto drain = [](const UniqueFd& stream) {
    std::string text;
    char buffer[4096];
    while (stream) {
      const ssize_t count = ::read(stream.get(), buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      if (text.size() < 4096) text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  };
  (void)drain(command.output);
  const std::string said = drain(command.error);
  while (true) {
    while (std::optional<nlohmann::json> event = client.TakeEvent()) {
      if (event->value("event", "") != "ended" || event->value("command", uint32_t{0}) != command.number) continue;
      if (event->value("exit_code", 1) == 0) return true;
      if (said.find("empty bundle") != std::string::npos) return false;
      return Error::Unsupported("git inside could not pack the commits: " + EscapeForTerminal(said));
    }
    CAISSON_TRY_VOID(client.Call("status"));  // waits for the supervisor; events come before its reply
  }
}

Result<int64_t> TakeBundle(session::Client& client, int target) {
  CAISSON_TRY(const UniqueFd source, client.OpenFile(kBundleInside, false));
  int64_t total = 0;
  std::string buffer(65536, '\0');
  while (true) {
    const ssize_t count = ::read(source.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, "read the bundle");
    if (count == 0) return total;
    total += count;
    if (total > kMostBundleBytes) return Error::Exhausted("the bundle is larger than " + FormatSize(kMostBundleBytes));
    CAISSON_TRY_VOID(linux_sys::WriteAll(target, std::string_view(buffer.data(), static_cast<size_t>(count))));
  }
}

// A file of the session's own directory, which no other user can read, for as long as git needs its name.
struct BundleFile {
  explicit BundleFile(const session::SessionDirectory& where) : directory(where) { Remove(); }
  ~BundleFile() { Remove(); }
  BundleFile(const BundleFile&) = delete;
  BundleFile& operator=(const BundleFile&) = delete;
  void Remove() const {
    ::unlinkat(directory.fd(), "commits.bundle", 0);
    (void)session::RemoveTree(directory.fd(), "commits.git");
  }
  const session::SessionDirectory& directory;
};

// Git before 2.46 does not check the objects of a bundle. So the bundle goes into an empty repository of ours first,
// from which every git fetches with all checks.
Status FetchChecked(const session::SessionDirectory& directory, const std::string& repository,
                    const std::string& prefix) {
  const auto run = [](const std::string& where, std::vector<std::string> arguments) -> Status {
    CAISSON_TRY(const Finished finished, RunGit(where, std::move(arguments)));
    if (finished.exit_code == 0) return {};
    return Error::Denied("the commits were refused by git: " + EscapeForTerminal(finished.output));
  };
  const std::string between = directory.File("commits.git");
  const std::vector<std::string> fetch = {
      "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance"};
  CAISSON_TRY_VOID(run(between, {"init", "--quiet", "--bare", "--template="}));
  // What the bundle builds on is the project's.
  CAISSON_TRY_VOID(directory.WriteText("commits.git/objects/info/alternates", repository + "/objects\n"));
  std::vector<std::string> unpack = fetch, take = fetch;
  unpack.insert(unpack.end(), {directory.File("commits.bundle"), "+refs/heads/*:refs/heads/*"});
  take.insert(take.end(), {between, "+refs/heads/*:" + prefix + "/*"});
  CAISSON_TRY_VOID(run(between, std::move(unpack)));
  return run(repository, std::move(take));
}

}  // namespace

Result<FetchedCommits> FetchCommits(const session::StoredSession& session) {
  CAISSON_TRY(const std::string repository, FindRepository(session.record));
  CAISSON_TRY(session::Client client, session::Client::Connect(session.directory));
  CAISSON_TRY(const Finished tips,
              RunGit(repository, {"for-each-ref", "--format=%(objectname)", "--count=" + std::to_string(kMostTips)}));
  if (tips.exit_code != 0) return Error::Unsupported("git: " + EscapeForTerminal(tips.output));
  std::vector<std::string> known = Lines(tips.output);
  known.erase(std::remove_if(known.begin(), known.end(), [](const auto& word) { return !IsObjectName(word); }),
              known.end());
  const std::string prefix = "refs/caisson/" + session.record.id;
  CAISSON_TRY(const bool packed, PackInside(client, known));
  if (packed) {
    const BundleFile file(session.directory);
    const UniqueFd target(
        ::openat(session.directory.fd(), "commits.bundle", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!target) return Error::System(errno, "make a file for the bundle");
    CAISSON_TRY(const int64_t bytes, TakeBundle(client, target.get()));
    CAISSON_TRY_VOID(client.Remove(kBundleInside));
    CAISSON_TRY_VOID(client.Note("file_out", {{"path", kBundleInside}, {"bytes", bytes}}));
    CAISSON_TRY_VOID(FetchChecked(session.directory, repository, prefix));
  }
  CAISSON_TRY(const Finished refs,
              RunGit(repository, {"for-each-ref", "--format=%(objectname) %(refname)", prefix + "/"}));
  if (refs.exit_code != 0) return Error::Unsupported("git: " + EscapeForTerminal(refs.output));
  FetchedCommits fetched_commits{packed, ordered_json::array()};
  for (const std::string& line : Lines(refs.output)) {
    const size_t space = std::min(line.find(' '), line.size());
    fetched_commits.refs.push_back(
        {{"commit", line.substr(0, space)}, {"ref", line.substr(std::min(space + 1, line.size()))}});
  }
  return fetched_commits;
}

bool MayHaveCommits(const session::StoredSession& session) {
  if (!session::IsLive(session.record.state) || !FindRepository(session.record)) return false;
  struct stat info {};
  return session.record.workspace_mode == session::WorkspaceMode::kCopy ||
         ::fstatat(session.directory.fd(), "layer/upper/.git", &info, AT_SYMLINK_NOFOLLOW) == 0;
}

int SessionCommits(Arguments arguments) {
  CLI::App app(
      "Bring commits that were made in a session into the project's repository.\n"
      "Usage: caisson session commits ID",
      "session commits");
  app.footer(R"(
Commits of the session's branches come to refs/caisson/ID/BRANCH of the project, checked by git (fsck). Nothing else of the
repository changes: look at them with git log refs/caisson/ID/BRANCH, and take them with git merge or git cherry-pick. The
session must be alive: git runs inside to pack them.)");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string id;
  app.add_option("ID", id, "The session")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Result<session::StoredSession> found = FindSession(id);
  if (!found) return Fail(found.error());
  const Result<FetchedCommits> fetched = FetchCommits(*found);
  if (!fetched) return Fail(fetched.error());
  if (as_json) {
    Print({{"schema_version", 1}, {"id", found->record.id}, {"fetched", fetched->is_new}, {"refs", fetched->refs}});
    return kExitDone;
  }
  if (!fetched->is_new) Complain("the session made no commits that the project does not have");
  for (const ordered_json& one : fetched->refs)
    std::printf("%s %s\n", one["commit"].get<std::string>().c_str(),
                EscapeForTerminal(one["ref"].get<std::string>()).c_str());
  return kExitDone;
}

}  // namespace caisson::cli
