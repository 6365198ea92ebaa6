#include "intake/unpack/layer.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/units.h"
#include "base/words.h"
#include "intake/unpack/raw_names.h"
#include "verify/digest.h"

namespace caisson::intake::unpack {
namespace {

// Bytes read and unpacked, and their bounds.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}

  void Read(size_t bytes) { read_ += bytes; }
  Status Enter(const std::string& name) {
    if (++entries_ <= limits_.entries) return {};
    return Error::Invalid(Quoted(name) + ": the archive has more than " + std::to_string(limits_.entries) + " entries");
  }
  // `bytes` of decompressed tar file: headers and padding count too, so that the stream itself is no bomb.
  Status Grow(uint64_t bytes) {
    unpacked_ += bytes;
    // A header for each entry, and padding.
    if (unpacked_ > limits_.bytes + (limits_.entries + 2) * 4096)
      return Error::Invalid("the archive unpacks to more than " + FormatSize(static_cast<int64_t>(limits_.bytes)));
    if (unpacked_ > limits_.ratio_free && unpacked_ / limits_.ratio > read_)
      return Error::Invalid("the archive unpacks to more than " + std::to_string(limits_.ratio) + " times its size");
    return {};
  }

 private:
  const Limits limits_;
  uint64_t entries_ = 0, read_ = 0, unpacked_ = 0;
};

struct Input {
  std::unique_ptr<Decompressor> plain;
  std::unique_ptr<RawNameTar> tar;
  std::optional<Error> fault;
  verify::Sha256Stream hash;
  Reader reader;
};

la_ssize_t ReadTar(struct archive* reader, void* data, const void** bytes) {
  auto* input = static_cast<Input*>(data);
  Result<std::string_view> next = input->tar->Next();
  if (!next) {
    input->fault = std::move(next).error();
    archive_set_error(reader, EILSEQ, "cannot be unpacked");
    return -1;
  }
  *bytes = next->data();
  return static_cast<la_ssize_t>(next->size());
}

Error FaultOf(const Input& input, const std::string& name) {
  return input.fault ? *input.fault : Fault(input.reader.get(), name);
}

const char* WhyLeftOut(unsigned type) {
  switch (type) {
    case AE_IFCHR:
    case AE_IFBLK:
      return "a device";
    case AE_IFIFO:
      return "a named pipe";
    case AE_IFSOCK:
      return "a socket";
    default:
      return "neither file, directory nor link";
  }
}

class Layer {
 public:
  Layer(Input& input, const Limits& limits, Meter& meter, const std::function<Status(const Frame&)>& deliver)
      : input_(input), limits_(limits), meter_(meter), deliver_(deliver) {}

  Status ReadEntry(struct archive_entry* entry) {
    const char* stored_name = archive_entry_pathname(entry);
    if (stored_name == nullptr) return Error::Invalid("an entry's name cannot be read");
    const std::string name = stored_name;
    if (name.size() > limits_.path_bytes)
      return Error::Invalid(Quoted(name) + ": the name is longer than " + std::to_string(limits_.path_bytes) +
                            " bytes");
    CAISSON_TRY_VOID(meter_.Enter(name));
    if (const char* other = archive_entry_hardlink(entry)) return SendLink(FrameKind::kHardLink, name, other);
    switch (archive_entry_filetype(entry)) {
      case AE_IFDIR:
        return deliver_({FrameKind::kDirectory, name, ""});
      case AE_IFLNK: {
        const char* target = archive_entry_symlink(entry);
        return SendLink(FrameKind::kSymlink, name, target != nullptr ? target : "");
      }
      case AE_IFREG:
        return SendFile(entry, name);
      default:
        return deliver_({FrameKind::kLeftOut, name, WhyLeftOut(archive_entry_filetype(entry))});
    }
  }

 private:
  Status SendLink(FrameKind kind, const std::string& name, const std::string& target) const {
    if (target.size() > limits_.path_bytes)
      return Error::Invalid(Quoted(name) + ": the link's target is longer than " + std::to_string(limits_.path_bytes) +
                            " bytes");
    return deliver_({kind, name, target});
  }

  Status SendFile(struct archive_entry* entry, const std::string& name) const {
    // The declared size is not trusted, but it is enough to stop before the first byte.
    if (archive_entry_size_is_set(entry) != 0 && archive_entry_size(entry) > 0 &&
        static_cast<uint64_t>(archive_entry_size(entry)) > limits_.file_bytes)
      return TooLarge(name);
    const bool executable = (archive_entry_perm(entry) & 0111) != 0;
    const int64_t time = archive_entry_mtime_is_set(entry) != 0 ? archive_entry_mtime(entry) : 0;
    CAISSON_TRY_VOID(deliver_({executable ? FrameKind::kExecutable : FrameKind::kFile, name, std::to_string(time)}));
    uint64_t bytes = 0;
    char chunk[65536];
    for (;;) {
      const la_ssize_t count = archive_read_data(input_.reader.get(), chunk, sizeof(chunk));  // holes become zeros
      if (count < 0) return FaultOf(input_, name);
      if (count == 0) return {};
      bytes += static_cast<uint64_t>(count);
      if (bytes > limits_.file_bytes) return TooLarge(name);
      CAISSON_TRY_VOID(deliver_({FrameKind::kMore, "", std::string(chunk, static_cast<size_t>(count))}));
    }
  }

  Error TooLarge(const std::string& name) const {
    return Error::Invalid(Quoted(name) + ": is larger than " + FormatSize(static_cast<int64_t>(limits_.file_bytes)));
  }

  Input& input_;
  const Limits& limits_;
  Meter& meter_;
  const std::function<Status(const Frame&)>& deliver_;
};

}  // namespace

Status UnpackLayer(ByteSource source, const Limits& limits, const std::function<Status(const Frame&)>& deliver) {
  Input input;
  Meter meter(limits);
  CAISSON_TRY(input.plain, Decompressor::Open([&]() -> Result<std::string_view> {
                CAISSON_TRY(const std::string_view bytes, source());
                meter.Read(bytes.size());
                return bytes;
              }));
  const auto next = [&]() -> Result<std::string_view> {
    CAISSON_TRY(const std::string_view bytes, input.plain->Next());
    CAISSON_TRY_VOID(meter.Grow(bytes.size()));
    input.hash.Add(bytes);
    return bytes;
  };
  input.tar = std::make_unique<RawNameTar>(next);
  input.reader.reset(archive_read_new());
  struct archive* reader = input.reader.get();
  if (reader == nullptr) return Error::System(ENOMEM, "open the archive");
  if (archive_read_support_format_tar(reader) != ARCHIVE_OK)
    return Error::Unsupported("this libarchive was built without tar");
  if (archive_read_open(reader, &input, nullptr, ReadTar, nullptr) != ARCHIVE_OK) return FaultOf(input, "");
  Layer layer(input, limits, meter, deliver);
  for (;;) {
    struct archive_entry* entry = nullptr;
    const int code = archive_read_next_header(reader, &entry);
    if (code == ARCHIVE_EOF) break;
    // A warning too: something in the header was not understood.
    if (code != ARCHIVE_OK) return FaultOf(input, "");
    CAISSON_TRY_VOID(layer.ReadEntry(entry));
  }
  // What follows the end of a tar file belongs to its hash.
  for (;;) {
    CAISSON_TRY(const std::string_view rest, input.tar->Next());
    if (rest.empty()) break;
  }
  return deliver({FrameKind::kHash, "", input.hash.FinishHex()});
}

}  // namespace caisson::intake::unpack
