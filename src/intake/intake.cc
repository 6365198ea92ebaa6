#include "intake/intake.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "intake/frames.h"
#include "intake/helper_process.h"
#include "verify/digest.h"

namespace caisson::intake {
namespace {

using policy::FileKind;
using policy::PlannedFile;

constexpr size_t kMaxMessageBytes = 1024;

// The helper's error message, escaped for a terminal and cut: an attacker may have written it.
std::string Shown(const std::string& message) { return EscapeForTerminal(message.substr(0, kMaxMessageBytes)); }

// Builds the tree from frames and applies the rules.
class Receiver {
 public:
  Receiver(const Limits& limits, uint64_t archive_bytes) : rules_(limits, archive_bytes) {}

  Status Take(Frame frame) {
    switch (frame.kind) {
      case FrameKind::kFile:
        return Keep({std::move(frame.name), std::move(frame.body), 0644, FileKind::kRegular});
      case FrameKind::kExecutable:
        return Keep({std::move(frame.name), std::move(frame.body), 0755, FileKind::kRegular});
      case FrameKind::kSymlink:
        return Keep({std::move(frame.name), std::move(frame.body), 0777, FileKind::kSymlink});
      case FrameKind::kDirectory:
        return Keep({std::move(frame.name), std::move(frame.body), 0755, FileKind::kDirectory});
      case FrameKind::kEnd:
        return {};
      case FrameKind::kMore:
      case FrameKind::kHardLink:
      case FrameKind::kLeftOut:
      case FrameKind::kHash:
        break;  // of a layer
      case FrameKind::kRefused:
        return Error::Invalid(Shown(frame.body));
      case FrameKind::kFailed:
        return Error{ErrorKind::kSystem, 0, "caisson-intake: " + Shown(frame.body)};
    }
    return Error::Invalid("a frame of an unknown kind");
  }

  Result<std::vector<PlannedFile>> Finish() {
    if (files_.empty()) return Error::Invalid("the archive is empty");
    for (std::string& path : rules_.ImpliedDirectories())
      files_.push_back({std::move(path), "", 0755, FileKind::kDirectory});
    std::sort(files_.begin(), files_.end(), [](const PlannedFile& a, const PlannedFile& b) { return a.path < b.path; });
    return std::move(files_);
  }

 private:
  Status Keep(PlannedFile file) {
    CAISSON_TRY_VOID(rules_.Enter(file.path, file.kind, file.bytes));
    if (!file.bytes.empty()) CAISSON_TRY_VOID(rules_.Grow(file.path, file.bytes.size()));
    files_.push_back(std::move(file));
    return {};
  }

  TreeRules rules_;
  std::vector<PlannedFile> files_;
};

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error::System(errno, "copy the archive");
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return {};
}

}  // namespace

Result<Archive> Archive::Take(int fd, std::string_view expected_sha256) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::System(errno, "stat the archive");
  if (!S_ISREG(info.st_mode)) return Error::Invalid("the archive is not a regular file");
  Archive archive;
  archive.fd_.Reset(::memfd_create("archive", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!archive.fd_) return Error::System(errno, "make a memory file");
  verify::Sha256Stream hash;
  char chunk[65536];
  for (;;) {
    const ssize_t size = ::pread(fd, chunk, sizeof(chunk), static_cast<off_t>(archive.bytes_));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Error::Invalid(std::string("the archive cannot be read: ") + std::strerror(errno));
    if (size == 0) break;
    archive.bytes_ += static_cast<uint64_t>(size);
    if (archive.bytes_ > kMaxArchiveBytes)
      return Error::Invalid("the archive is larger than " + FormatSize(kMaxArchiveBytes));
    hash.Add({chunk, static_cast<size_t>(size)});
    CAISSON_TRY_VOID(WriteAll(archive.fd_.get(), {chunk, static_cast<size_t>(size)}));
  }
  archive.sha256_ = hash.FinishHex();
  if (archive.bytes_ == 0) return Error::Invalid("the archive is an empty file");
  if (!expected_sha256.empty() && archive.sha256_ != expected_sha256)
    return Error::Invalid("the archive's SHA-256 is " + archive.sha256_ + ", not that of the request");
  if (::fcntl(archive.fd_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    return Error::System(errno, "seal the archive");
  return archive;
}

Result<std::vector<PlannedFile>> Unpack(const Archive& archive, ArchiveFormat format, const Limits& limits) {
  Receiver receiver(limits, archive.bytes());
  FrameReader frames(limits.path_bytes, std::max<uint64_t>(limits.file_bytes, kMaxMessageBytes),
                     [&](Frame frame) { return receiver.Take(std::move(frame)); });
  CAISSON_TRY(HelperProcess helper, HelperProcess::Start(archive.fd(), {NameOf(format), Format(limits)}));
  CAISSON_TRY_VOID(helper.ReadUntilEnd([&](std::string_view bytes) { return frames.Feed(bytes); }, kUnpackSeconds));
  CAISSON_TRY_VOID(frames.Finish());
  return receiver.Finish();
}

}  // namespace caisson::intake
