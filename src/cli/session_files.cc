// caisson session cp: files and directories into and out of a session.
//
// SECURITY: names and links inside are hostile. Below the place that the user named, the host's side is walked with
// descriptors only and follows no link.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "linux/files.h"

namespace caisson::cli {

namespace {

constexpr int kDeepest = 128;
constexpr int64_t kMostEntries = 1'000'000;

struct Place {
  std::string session;  // empty: on the host
  std::string path;
};

// "ID:/path" or "ID:path", which is below /workspace. A host path with a colon is written ./a:b.
Place ReadPlace(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || text.find('/') < colon) return {"", text};
  std::string path = text.substr(colon + 1);
  if (path.empty() || path[0] != '/') path = "/workspace" + (path.empty() ? "" : "/" + path);
  return {text.substr(0, colon), std::move(path)};
}

std::string BaseName(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos;
}

struct Copied {
  int64_t files = 0, bytes = 0, entries = 0;
  std::vector<std::string> skipped;
};

Result<int64_t> CopyBytes(int from, int to) {
  struct stat info {};
  if (::fstat(from, &info) != 0) return Error::System(errno, "stat");
  if (!S_ISREG(info.st_mode)) return Error::Invalid("not a regular file");
  // No more than there was: what is copied may be growing as fast as it is read.
  std::array<char, 65536> buffer;
  int64_t done = 0;
  while (done < info.st_size) {
    const ssize_t count =
        ::read(from, buffer.data(), std::min<size_t>(buffer.size(), static_cast<size_t>(info.st_size - done)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::System(errno, "read");
    if (count == 0) break;
    CAISSON_TRY_VOID(linux_sys::WriteAll(to, {buffer.data(), static_cast<size_t>(count)}));
    done += count;
  }
  return done;
}

class CopyIn {
 public:
  explicit CopyIn(session::Client& client) : client_(client) {}

  Status Entry(int directory, const char* name, const std::string& target, int depth) {
    if (depth > kDeepest || ++copied.entries > kMostEntries) return Error::Exhausted("the tree is too large to copy");
    struct stat info {};
    if (::fstatat(directory, name, &info, depth == 0 ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
      return Error::System(errno, EscapeForTerminal(name));
    if (S_ISLNK(info.st_mode)) {
      std::array<char, 4097> link;
      const ssize_t size = ::readlinkat(directory, name, link.data(), link.size());
      if (size < 0 || size == ssize_t{link.size()}) return Error::System(errno, EscapeForTerminal(name));
      (void)client_.Remove(target);
      return client_.MakeLink(target, std::string(link.data(), static_cast<size_t>(size)));
    }
    if (S_ISDIR(info.st_mode)) return Directory(directory, name, target, info.st_mode, depth);
    if (!S_ISREG(info.st_mode)) {
      copied.skipped.emplace_back(name);
      return {};
    }
    const UniqueFd from(::openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (depth == 0 ? 0 : O_NOFOLLOW)));
    if (!from) return Error::System(errno, EscapeForTerminal(name));
    CAISSON_TRY(const UniqueFd to, client_.OpenFile(target, true, info.st_mode & 0777));
    CAISSON_TRY(const int64_t bytes, CopyBytes(from.get(), to.get()));
    copied.bytes += bytes;
    ++copied.files;
    return {};
  }

  Copied copied;

 private:
  Status Directory(int in, const char* name, const std::string& target, mode_t mode, int depth) {
    const int own = ::openat(in, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth == 0 ? 0 : O_NOFOLLOW));
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(own < 0 ? nullptr : ::fdopendir(own), ::closedir);
    if (!entries) return Error::System(errno, EscapeForTerminal(name));
    CAISSON_TRY_VOID(client_.MakeDirectories(target, mode & 0777));
    while (const struct dirent* entry = ::readdir(entries.get())) {
      if (!IsPlainName(entry->d_name)) continue;
      CAISSON_TRY_VOID(Entry(::dirfd(entries.get()), entry->d_name, target + "/" + entry->d_name, depth + 1));
    }
    return {};
  }

  session::Client& client_;
};

class CopyOut {
 public:
  explicit CopyOut(session::Client& client) : client_(client) {}

  // `name` in `directory` is made, or replaced if it is a file or link.
  Status Entry(const std::string& source, const session::RemoteFile& info, int directory, const std::string& name,
               int depth) {
    if (depth > kDeepest || ++copied.entries > kMostEntries) return Error::Exhausted("the tree is too large to copy");
    if (S_ISDIR(info.mode)) return Directory(source, info, directory, name, depth);
    if (S_ISLNK(info.mode)) {
      ::unlinkat(directory, name.c_str(), 0);
      if (::symlinkat(info.link_target.c_str(), directory, name.c_str()) != 0)
        return Error::System(errno, "make the link " + EscapeForTerminal(name));
      ++copied.files;
      return {};
    }
    if (!S_ISREG(info.mode)) {
      copied.skipped.push_back(source);
      return {};
    }
    CAISSON_TRY(const UniqueFd from, client_.OpenFile(source, false));
    // A new file instead of writing into what is there: it may be a link, or have other names.
    const std::string fresh = "." + std::to_string(::getpid()) + ".caisson-copy";
    ::unlinkat(directory, fresh.c_str(), 0);
    const UniqueFd to(
        ::openat(directory, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, info.mode & 0777));
    if (!to) return Error::System(errno, "create " + EscapeForTerminal(name));
    Result<int64_t> bytes = CopyBytes(from.get(), to.get());
    if (bytes && ::renameat(directory, fresh.c_str(), directory, name.c_str()) != 0)
      bytes = Error::System(errno, "create " + EscapeForTerminal(name));
    if (!bytes) {
      ::unlinkat(directory, fresh.c_str(), 0);
      return std::move(bytes).error();
    }
    copied.bytes += *bytes;
    ++copied.files;
    return {};
  }

  Copied copied;

 private:
  Status Directory(const std::string& source, const session::RemoteFile& info, int in, const std::string& name,
                   int depth) {
    if (::mkdirat(in, name.c_str(), (info.mode & 0777) | 0700) != 0 && errno != EEXIST)
      return Error::System(errno, "make the directory " + EscapeForTerminal(name));
    const UniqueFd directory(::openat(in, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!directory) return Error::System(errno, "open " + EscapeForTerminal(name));
    CAISSON_TRY(const std::vector<session::RemoteFile> files, client_.List(source));
    for (const session::RemoteFile& file : files) {
      if (!IsPlainName(file.name)) return Error::Invalid("a name inside is no name");
      CAISSON_TRY_VOID(Entry(source + "/" + file.name, file, directory.get(), file.name, depth + 1));
    }
    return {};
  }

  session::Client& client_;
};

Status In(session::Client& client, const std::string& source, std::string target, Copied& copied) {
  // Into a directory that is there, as cp does.
  const Result<session::RemoteFile> there = client.Stat(target);
  const bool wants_directory = target.back() == '/';
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  if ((there && S_ISDIR(there->mode)) || wants_directory) target += (target == "/" ? "" : "/") + BaseName(source);
  CopyIn copy(client);
  Status status = copy.Entry(AT_FDCWD, source.c_str(), target, 0);
  copied = std::move(copy.copied);
  return status;
}

Status Out(session::Client& client, const std::string& source, const std::string& target, Copied& copied) {
  CAISSON_TRY(const session::RemoteFile info, client.Stat(source));
  std::string parent = target, name = BaseName(source);
  struct stat there {};
  if (::stat(target.c_str(), &there) != 0 || !S_ISDIR(there.st_mode)) {
    name = BaseName(target);
    const std::string whole = target.back() == '/' ? target.substr(0, target.size() - 1) : target;
    const size_t slash = whole.rfind('/');
    parent = slash == std::string::npos ? "." : whole.substr(0, slash + 1);
  }
  if (!IsPlainName(name)) return Error::Invalid("give the file a name on this side");
  CAISSON_TRY(const UniqueFd directory, linux_sys::Open(parent, O_RDONLY | O_DIRECTORY));
  CopyOut copy(client);
  Status status = copy.Entry(source, info, directory.get(), name, 0);
  copied = std::move(copy.copied);
  return status;
}

}  // namespace

int SessionCopy(Arguments arguments) {
  CLI::App app(
      "Copy files and directories into a session or out of it.\n"
      "Usage: caisson session cp FILE ID:/path    or    caisson session cp ID:/path FILE",
      "session cp");
  app.footer(R"(
A path without a leading slash is below /workspace. Links are copied as links, and devices and sockets are left out.
Below the place that you name, nothing on this side is reached through a link.)");
  bool as_json = false;
  Prepare(app, &as_json);
  std::string from_text, to_text;
  app.add_option("FROM", from_text, "A path, or ID:PATH")->required();
  app.add_option("TO", to_text, "ID:PATH, or a path")->required();
  if (const auto exit_code = Parse(app, std::move(arguments), kExitRunRefused)) return *exit_code;
  const Place from = ReadPlace(from_text), to = ReadPlace(to_text);
  if (from.session.empty() == to.session.empty())
    return Fail(Error::Invalid("exactly one side must be in a session: ID:/path"));
  if (from.path.empty() || to.path.empty()) return Fail(Error::Invalid("a path is empty"));
  const bool in = from.session.empty();
  const Result<session::StoredSession> found = FindSession(in ? to.session : from.session);
  if (!found) return Fail(found.error());
  Result<session::Client> client = session::Client::Connect(found->directory);
  if (!client) return Fail(client.error());
  Copied copied;
  Status status = in ? In(*client, from.path, to.path, copied) : Out(*client, from.path, to.path, copied);
  for (const std::string& name : copied.skipped) Complain("left out, because it is not a file: " + name);
  // Also what was copied before an error has been copied.
  const Status noted =
      client->Note(in ? "file_in" : "file_out", {{"path", ReplaceInvalidUtf8(in ? to.path : from.path)},
                                                 {"host_path", ReplaceInvalidUtf8(in ? from.path : to.path)},
                                                 {"files", copied.files},
                                                 {"bytes", copied.bytes}});
  if (!status) return Fail(status.error());
  if (!noted) return Fail(noted.error());
  if (as_json) Print({{"id", found->record.id}, {"files", copied.files}, {"bytes", copied.bytes}});
  return kExitDone;
}

}  // namespace caisson::cli
