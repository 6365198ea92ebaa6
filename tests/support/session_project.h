// For the tests of src/session: a project directory, a session's private copy of it, and a journal directory.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "base/unique_fd.h"
#include "session/apply.h"

namespace caisson::session {

namespace fs = std::filesystem;

inline void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Every entry with its type, mode and bytes.
inline std::map<std::string, std::string> Snapshot(const fs::path& root) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    struct stat info {};
    ::lstat(entry.path().c_str(), &info);
    std::string text = std::to_string(info.st_mode) + ":";
    if (entry.is_symlink()) {
      text += fs::read_symlink(entry.path());
    } else if (entry.is_regular_file()) {
      text += Read(entry.path());
    }
    tree[entry.path().lexically_relative(root)] = text;
  }
  return tree;
}

// A project, and a session with a private copy of it.
class SessionProject : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/caisson-session-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    fs::create_directories(project() / "d/deep");
    fs::create_directory(root_ / "journal");
    Write(project() / "kept", "kept\n");
    Write(project() / "edited", "one\ntwo\nthree\n");
    Write(project() / "gone", "gone\n");
    Write(project() / "d/deep/file", "deep\n");
    Write(project() / "d/other", "other\n");
    Begin();
  }
  void TearDown() override { RemoveAll(root_); }

  // Also directories that forbid writing, which only root could remove as they are.
  static void RemoveAll(const fs::path& root) {
    if (!fs::exists(root)) return;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_directory() && !entry.is_symlink()) ::chmod(entry.path().c_str(), 0755);
    }
    fs::remove_all(root);
  }

  fs::path project() const { return root_ / "project"; }
  fs::path copy() const { return root_ / "copy"; }

  void Begin() {
    RemoveAll(copy());
    fs::copy(project(), copy(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    project_fd_.Reset(::open(project().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    copy_fd_.Reset(::open(copy().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    journal_fd_.Reset(::open((root_ / "journal").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(WriteManifest(copy_fd_.get(), journal_fd_.get(), "manifest"));
    auto manifest = ReadManifest(journal_fd_.get(), "manifest");
    ASSERT_TRUE(manifest) << manifest.error().message;
    manifest_ = *std::move(manifest);
    auto stamp = TakeStamp(project_fd_.get());
    ASSERT_TRUE(stamp);
    options_.stamp = *stamp;
    options_.journal_fd = journal_fd_.get();
  }

  SessionTree tree() const { return {copy_fd_.get(), &manifest_}; }
  Diff MakeDiff(const DiffLimits& limits = {}) {
    auto diff = ComputeDiff(project_fd_.get(), tree(), limits);
    EXPECT_TRUE(diff) << diff.error().message;
    return diff ? *std::move(diff) : Diff();
  }
  Result<ApplyReport> DoApply(const Diff& diff) { return Apply(project_fd_.get(), tree(), diff, options_); }

  // Changes of every kind.
  void Work() {
    Write(copy() / "edited", "one\n2\nthree\n");
    Write(copy() / "new/tree/file", "new\n");
    Write(copy() / "added", "added\n");
    fs::remove(copy() / "gone");
    fs::remove_all(copy() / "d/deep");
    Write(copy() / "d/deep", "a file now\n");
    fs::create_symlink("kept", copy() / "link");
    ::chmod((copy() / "kept").c_str(), 0755);
    fs::create_directory(copy() / "readonly");
    Write(copy() / "readonly/x", "x");
    ::chmod((copy() / "readonly").c_str(), 0555);
  }

  fs::path root_;
  UniqueFd project_fd_, copy_fd_, journal_fd_;
  Manifest manifest_;
  ApplyOptions options_;
};

// Runs `body` in a child with a mount namespace, and a user namespace unless root. 77: no overlay here.
inline int InNamespace(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const uid_t uid = ::geteuid();  // before unshare, after which they are unmapped
    const gid_t gid = ::getegid();
    if (::unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(77);
    if (uid != 0) {
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << uid << " " << uid << " 1";
      std::ofstream("/proc/self/gid_map") << gid << " " << gid << " 1";
    }
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline bool MustRun(const char* kind) {
  const char* listed = ::getenv("CAISSON_MUST_RUN");
  return listed != nullptr &&
         ("," + std::string(listed) + ",").find("," + std::string(kind) + ",") != std::string::npos;
}

}  // namespace caisson::session
