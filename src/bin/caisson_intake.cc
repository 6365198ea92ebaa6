// caisson-intake: unpacks one archive for the caisson programs, in a process that has nothing to lose.
//
//   caisson-intake FORMAT LIMITS <archive >frames
//
// Standard input is a sealed memory file with the archive, standard output a pipe for the frames of intake/frames.h.
// The process shuts itself in before it looks at the first byte; a flaw in libarchive then gives an attacker a process
// that can lie to its reader, who judges every frame again, and can do nothing else.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "intake/archive_format.h"
#include "intake/frames.h"
#include "intake/unpack/confinement.h"
#include "intake/unpack/unpack.h"

namespace {

using caisson::Error;
using caisson::Result;
using caisson::Status;
using caisson::intake::Frame;
using caisson::intake::FrameKind;
using caisson::policy::FileKind;
using caisson::policy::PlannedFile;

// xz and zstd may ask for windows of 64 and 128 MiB; a file is held once while it is read and once while it is sent.
constexpr uint64_t kMemoryBytes = uint64_t{640} << 20;
constexpr uint64_t kCpuSeconds = 20;

Status Send(const Frame& frame) {
  const std::string text = Encode(frame);
  for (size_t written = 0; written < text.size();) {
    const ssize_t size = ::write(STDOUT_FILENO, text.data() + written, text.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Error::System(errno, "send a frame");
    written += static_cast<size_t>(size);
  }
  return {};
}

Status SendFile(const PlannedFile& file) {
  const FrameKind kind = file.kind == FileKind::kDirectory ? FrameKind::kDirectory
                         : file.kind == FileKind::kSymlink ? FrameKind::kSymlink
                         : (file.mode & 0111) != 0         ? FrameKind::kExecutable
                                                           : FrameKind::kFile;
  return Send({kind, file.path, file.bytes});
}

// Mapping is not reading. The seals say that nobody can change or shorten the file under us.
Result<std::string_view> MapArchive() {
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK;
  struct stat info {};
  if ((::fcntl(STDIN_FILENO, F_GET_SEALS) & kSeals) != kSeals || ::fstat(STDIN_FILENO, &info) != 0 || info.st_size <= 0)
    return Error::Invalid("standard input is not a sealed archive");
  const auto size = static_cast<size_t>(info.st_size);
  void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, STDIN_FILENO, 0);
  if (bytes == MAP_FAILED) return Error::System(errno, "map the archive");
  return std::string_view(static_cast<const char*>(bytes), size);
}

Result<std::string_view> Prepare() {
  CAISSON_TRY_VOID(caisson::intake::unpack::PrepareLibrary());
  CAISSON_TRY(const std::string_view archive, MapArchive());
  CAISSON_TRY_VOID(caisson::intake::unpack::Confine(kMemoryBytes, kCpuSeconds));
  return archive;
}

Frame Work(caisson::intake::ArchiveFormat format, const caisson::intake::Limits& limits) {
  const Result<std::string_view> archive = Prepare();
  if (!archive) return {FrameKind::kFailed, "", archive.error().message};
  const Status unpacked = caisson::intake::unpack::Unpack(*archive, format, limits, SendFile);
  if (unpacked) return {FrameKind::kEnd, "", ""};
  const bool refused = unpacked.error().kind == caisson::ErrorKind::kInvalid;
  return {refused ? FrameKind::kRefused : FrameKind::kFailed, "", unpacked.error().message};
}

}  // namespace

int main(int argc, char** argv) {
  const auto format = argc == 3 ? caisson::intake::FindArchiveFormat(argv[1]) : std::nullopt;
  const auto limits = argc == 3 ? caisson::intake::ParseLimits(argv[2]) : std::nullopt;
  if (!format || !limits) {
    std::fputs("caisson-intake: part of caisson, which starts it to unpack archives; see: caisson verify --help\n",
               stderr);
    return 2;
  }
  const bool sent = Send(Work(*format, *limits)).has_value();
  ::_exit(sent ? 0 : 1);  // nothing is left to do that the filter would let pass
}
