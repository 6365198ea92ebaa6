// caisson-intake: unpacks one archive for the caisson programs, in a process without rights.
//
//   caisson-intake FORMAT LIMITS <archive >frames
//   caisson-intake layer LIMITS <stream >frames
//
// Standard input is a sealed memory file with the archive, standard output a pipe for the frames of intake/frames.h.
// For a layer of an image, which may be large, standard input is a socket.
// The process confines itself before it reads the first byte. A flaw in libarchive then gives an attacker a process
// that can only send false frames, and the reader checks every frame again.
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
#include "intake/unpack/layer.h"
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
constexpr uint64_t kCpuSeconds = 10;
constexpr uint64_t kLayerCpuSeconds = 1800;

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

// Mapping does not read the file. The seals guarantee that no process can change or shorten it.
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

Frame EndOf(const Status& unpacked) {
  if (unpacked) return {FrameKind::kEnd, "", ""};
  const bool refused = unpacked.error().kind == caisson::ErrorKind::kInvalid;
  return {refused ? FrameKind::kRefused : FrameKind::kFailed, "", unpacked.error().message};
}

Result<std::string_view> ReadStream() {
  static char chunk[256 << 10];
  for (;;) {
    const ssize_t size = ::read(STDIN_FILENO, chunk, sizeof(chunk));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Error::System(errno, "read the archive");
    return std::string_view(chunk, static_cast<size_t>(size));
  }
}

Frame WorkOnLayer(const caisson::intake::Limits& limits) {
  Status prepared = caisson::intake::unpack::PrepareLibrary();
  if (prepared) prepared = caisson::intake::unpack::Confine(kMemoryBytes, kLayerCpuSeconds, true);
  if (!prepared) return {FrameKind::kFailed, "", prepared.error().message};
  return EndOf(caisson::intake::unpack::UnpackLayer(ReadStream, limits, Send));
}

Frame Work(caisson::intake::ArchiveFormat format, const caisson::intake::Limits& limits) {
  const Result<std::string_view> archive = Prepare();
  if (!archive) return {FrameKind::kFailed, "", archive.error().message};
  return EndOf(caisson::intake::unpack::Unpack(*archive, format, limits, SendFile));
}

}  // namespace

int main(int argc, char** argv) {
  const auto format = argc == 3 ? caisson::intake::FindArchiveFormat(argv[1]) : std::nullopt;
  const auto limits = argc == 3 ? caisson::intake::ParseLimits(argv[2]) : std::nullopt;
  if (limits && argv[1] == std::string_view("layer")) ::_exit(Send(WorkOnLayer(*limits)).has_value() ? 0 : 1);
  if (!format || !limits) {
    std::fputs("caisson-intake: part of caisson, which starts it to unpack archives; see: caisson verify --help\n",
               stderr);
    return 2;
  }
  const bool sent = Send(Work(*format, *limits)).has_value();
  ::_exit(sent ? 0 : 1);  // the filter permits no further cleanup
}
