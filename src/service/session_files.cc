// Files of sessions. The supervisor opens them inside, as the inside user and never outside of the sandbox's tree; what
// comes back is a descriptor of a regular file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/units.h"
#include "linux/files.h"
#include "service/engine.h"
#include "service/session_paths.h"
#include "service/sessions.h"
#include "session/json_bytes.h"

namespace caisson::service {

using nlohmann::json;
using session::SessionDirectory;

namespace {

constexpr int64_t kCopyBytes = int64_t{256} << 10;

const char* TypeOf(mode_t mode) {
  if (S_ISREG(mode)) return "file";
  if (S_ISDIR(mode)) return "directory";
  return S_ISLNK(mode) ? "link" : "other";
}

json EntryOf(const session::RemoteFile& file) {
  json entry = {{"name", session::BytesToJson(std::string_view(file.name))},
                {"type", TypeOf(file.mode)},
                {"mode", file.mode & 07777U},
                {"size", file.size},
                {"modified_at", UtcTime(file.modified_ns / 1'000'000)}};
  if (S_ISLNK(file.mode)) {
    entry["link_target"] = session::BytesToJson(std::string_view(file.link_target));
    // What it leads to, inside: null where that does not exist.
    entry["target_type"] = file.target_mode == 0 ? json() : json(TypeOf(file.target_mode));
  }
  return entry;
}

}  // namespace

Error AboutPath(Error error) {
  if (error.kind != ErrorKind::kSystem) return error;
  const int number = error.errno_value;
  switch (number) {
    case ENOENT:
      return {ErrorKind::kNotFound, number, "there is no such file"};
    case EISDIR:
      return {ErrorKind::kConflict, number, "this is a directory; its entries are at files?list=PATH"};
    case ENOTDIR:
      return {ErrorKind::kConflict, number, "a part of the path is not a directory"};
    case EEXIST:
      return {ErrorKind::kConflict, number, "there is a file of this name"};
    case ENOSPC:
    case EDQUOT:
      return {ErrorKind::kExhausted, number, "the session has no room left for it"};
    case EACCES:
    case EPERM:
    case EROFS:
    case EBUSY:
      return {ErrorKind::kDenied, number, "the inside user may not do that there"};
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV:
    case EINVAL:
      return {ErrorKind::kInvalid, number, "path: " + error.message};
    default:
      return error;
  }
}

Result<SessionFile> Sessions::OpenFile(const Caller& caller, const std::string& id, const std::string& path) {
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kRead, id));
  SessionFile file;
  CAISSON_TRY(file.file, AboutPath(client.OpenFile(path, false)));
  struct stat info {};
  if (::fstat(file.file.get(), &info) != 0) return Error::System(errno, "stat a session's file");
  if (S_ISDIR(info.st_mode)) return AboutPath(Error::System(EISDIR, path));
  if (!S_ISREG(info.st_mode)) return Error::Conflict("this is not a regular file");
  file.bytes = info.st_size;
  file.mode = info.st_mode & 07777;
  (void)client.Note("file_out", {{"path", session::BytesToJson(std::string_view(path))}, {"bytes", file.bytes}});
  return file;
}

Status Sessions::CheckDisk(const std::string& id, const session::Record& record, session::Client& client,
                           int64_t bytes) {
  CAISSON_TRY(const json status, client.Call("status"));
  const int64_t measured = status.value("usage", json::object()).value("disk_bytes", int64_t{0});
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Error::NotFound("the session was removed");
  Entry& entry = found->second;
  // The layer is measured while commands run. What was sent in since the last one began counts in full.
  if (entry.put_commands != record.commands) {
    entry.put_commands = record.commands;
    entry.put_bytes = 0;
  }
  if (measured + entry.put_bytes + bytes > record.disk_bytes)
    return Error::Exhausted("the session may keep " + FormatSize(record.disk_bytes) +
                            " of changes, and this would be more");
  entry.put_bytes += bytes;
  return {};
}

Status Sessions::PutFile(const Caller& caller, const std::string& id, const std::string& path, int source,
                         std::string_view memory, int64_t bytes, int64_t mode) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kSubmit, id));
  CAISSON_TRY(const session::Record record, RecordOf(directory));
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  CAISSON_TRY_VOID(CheckDisk(id, record, client, bytes));
  const std::string parent = path.substr(0, path.rfind('/'));
  if (!parent.empty()) {
    Status made = client.MakeDirectories(parent, 0755);
    // What is in the way is a part of the path, not the file itself.
    if (!made && made.error().errno_value == EEXIST) return AboutPath(Error::System(ENOTDIR, parent));
    if (!made) return AboutPath(std::move(made).error());
  }
  CAISSON_TRY(const UniqueFd file, AboutPath(client.OpenFile(path, true, mode < 0 ? 0644 : static_cast<mode_t>(mode))));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Error::Conflict("this is not a regular file");
  // An existing file keeps its mode when it is opened.
  if (mode >= 0 && (info.st_mode & 07777) != static_cast<mode_t>(mode) &&
      ::fchmod(file.get(), static_cast<mode_t>(mode)) != 0)
    return Error::System(errno, "set the mode of a session's file");
  for (int64_t at = 0; at < bytes;) {
    const int64_t size = std::min(kCopyBytes, bytes - at);
    std::string held;
    if (source >= 0) {
      CAISSON_TRY(held, linux_sys::ReadAt(source, at, size));
    }
    const std::string_view piece =
        source >= 0 ? std::string_view(held) : memory.substr(static_cast<size_t>(at), static_cast<size_t>(size));
    if (const Status written = linux_sys::WriteAll(file.get(), piece); !written) return AboutPath(written.error());
    at += size;
  }
  return client.Note("file_in", {{"path", session::BytesToJson(std::string_view(path))}, {"bytes", bytes}});
}

Status Sessions::RemoveFile(const Caller& caller, const std::string& id, const std::string& path) {
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  CAISSON_TRY_VOID(AboutPath(client.Stat(path)));
  return AboutPath(client.Remove(path));
}

Result<json> Sessions::ListFiles(const Caller& caller, const std::string& id, const std::string& path) {
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kRead, id));
  CAISSON_TRY(const std::vector<session::RemoteFile> files, AboutPath(client.List(path)));
  json entries = json::array();
  for (const session::RemoteFile& file : files) entries.push_back(EntryOf(file));
  return json{{"path", session::BytesToJson(std::string_view(path))}, {"entries", std::move(entries)}};
}

Result<json> Sessions::StatFile(const Caller& caller, const std::string& id, const std::string& path) {
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kRead, id));
  CAISSON_TRY(const session::RemoteFile file, AboutPath(client.Stat(path)));
  json entry = EntryOf(file);
  entry["path"] = session::BytesToJson(std::string_view(path));
  return entry;
}

Status Sessions::MakeDirectory(const Caller& caller, const std::string& id, const std::string& path, int64_t mode) {
  CAISSON_TRY(session::Client client, ConnectTo(caller, Right::kSubmit, id));
  CAISSON_TRY_VOID(AboutPath(client.MakeDirectories(path, mode < 0 ? 0755 : static_cast<mode_t>(mode))));
  return client.Note("file_in",
                     {{"path", session::BytesToJson(std::string_view(path))}, {"directory", true}, {"bytes", 0}});
}

Result<Document> Sessions::Recorded(const Caller& caller, const std::string& id, const char* name) {
  CAISSON_TRY(const SessionDirectory directory, Own(caller, Right::kRead, id));
  Document document;
  document.file.Reset(::openat(directory.fd(), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!document.file || ::fstat(document.file.get(), &info) != 0)
    return Error::NotFound("the session recorded nothing");
  document.bytes = info.st_size;
  return document;
}

}  // namespace caisson::service
