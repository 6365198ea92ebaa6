#include "intake/layer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "base/words.h"
#include "intake/frames.h"
#include "intake/helper_process.h"
#include "policy/syntax.h"
#include "verify/digest.h"

namespace caisson::intake {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kMaxMessageBytes = 1024;
constexpr int64_t kIdleSeconds = 120;

// Passes the frames on to a sink and applies the bounds a second time.
class Receiver {
 public:
  Receiver(const Limits& limits, const uint64_t& archive_bytes, LayerSink& sink)
      : limits_(limits), archive_bytes_(archive_bytes), sink_(sink) {}

  Status Take(const Frame& frame) {
    switch (frame.kind) {
      case FrameKind::kMore:
        return TakeBytes(frame.body);
      case FrameKind::kHash:
        if (!policy::IsSha256Hex(frame.body)) return Broken();
        hash_ = frame.body;
        return {};
      case FrameKind::kEnd:
        return hash_.empty() ? Status(Broken()) : sink_.OnEnd();
      case FrameKind::kRefused:
        return Error::Invalid(Shown(frame.body));
      case FrameKind::kFailed:
        return Error{ErrorKind::kSystem, 0, "caisson-intake: " + Shown(frame.body)};
      default:
        return TakeEntry(frame);
    }
  }

  const std::string& hash() const { return hash_; }

 private:
  static Error Broken() { return Error::Invalid("the unpacking helper's answer makes no sense"); }
  static std::string Shown(const std::string& text) { return EscapeForTerminal(text.substr(0, kMaxMessageBytes)); }

  Status TakeEntry(const Frame& frame) {
    if (++entries_ > limits_.entries)
      return Error::Invalid("the archive has more than " + std::to_string(limits_.entries) + " entries");
    in_file_ = false;
    switch (frame.kind) {
      case FrameKind::kDirectory:
        return sink_.OnDirectory(frame.name);
      case FrameKind::kSymlink:
        return sink_.OnSymlink(frame.name, frame.body);
      case FrameKind::kHardLink:
        return sink_.OnHardLink(frame.name, frame.body);
      case FrameKind::kLeftOut:
        return sink_.OnLeftOut(frame.name, Shown(frame.body));
      default:
        break;
    }
    int64_t time = 0;
    const char* end = frame.body.data() + frame.body.size();
    if (const auto read = std::from_chars(frame.body.data(), end, time); read.ptr != end || read.ec != std::errc())
      return Broken();
    in_file_ = true;
    file_bytes_ = 0;
    name_ = frame.name;
    return sink_.OnFile(frame.name, frame.kind == FrameKind::kExecutable, time);
  }

  Status TakeBytes(const std::string& bytes) {
    if (!in_file_) return Broken();
    file_bytes_ += bytes.size();
    bytes_ += bytes.size();
    if (file_bytes_ > limits_.file_bytes)
      return Error::Invalid(Quoted(name_) + ": is larger than " + FormatSize(static_cast<int64_t>(limits_.file_bytes)));
    if (bytes_ > limits_.bytes)
      return Error::Invalid("the archive unpacks to more than " + FormatSize(static_cast<int64_t>(limits_.bytes)));
    if (bytes_ > limits_.ratio_free && bytes_ / limits_.ratio > archive_bytes_)
      return Error::Invalid("the archive unpacks to more than " + std::to_string(limits_.ratio) + " times its size");
    return sink_.OnBytes(bytes);
  }

  const Limits& limits_;
  const uint64_t& archive_bytes_;
  LayerSink& sink_;
  uint64_t entries_ = 0, bytes_ = 0, file_bytes_ = 0;
  bool in_file_ = false;
  std::string name_, hash_;
};

}  // namespace

Result<LayerFacts> UnpackLayer(int fd, const Limits& limits, LayerSink& sink) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error::System(errno, "stat the archive");
  if (!S_ISREG(info.st_mode)) return Error::Invalid("the archive is not a regular file");
  LayerFacts facts;
  verify::Sha256Stream hash;
  const auto size = static_cast<uint64_t>(info.st_size);
  Receiver receiver(limits, size, sink);
  FrameReader frames(limits.path_bytes, std::max<uint64_t>(kPieceBytes, limits.path_bytes),
                     [&](const Frame& frame) { return receiver.Take(frame); });
  std::string piece(4 * kPieceBytes, '\0');
  const auto give = [&]() -> Result<std::string_view> {
    for (;;) {
      const ssize_t count = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(facts.bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Error::Invalid(std::string("the archive cannot be read: ") + std::strerror(errno));
      const std::string_view bytes(piece.data(), static_cast<size_t>(count));
      facts.bytes += bytes.size();
      if (facts.bytes > size) return Error::Invalid("the archive grew while it was read");
      hash.Add(bytes);
      return bytes;
    }
  };
  CAISSON_TRY(HelperProcess helper, HelperProcess::StartFed({"layer", Format(limits)}));
  CAISSON_TRY_VOID(helper.Exchange(
      give, [&](std::string_view bytes) { return frames.Feed(bytes); }, kIdleSeconds));
  CAISSON_TRY_VOID(frames.Finish());
  if (facts.bytes != size) return Error::Invalid("the archive goes on after its end");
  facts.sha256 = hash.FinishHex();
  facts.unpacked = receiver.hash();
  return facts;
}

}  // namespace caisson::intake
