#include "intake/unpack/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <iconv.h>
#include <locale.h>
#include <stdlib.h>
#include <time.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/words.h"
#include "intake/unpack/decompressor.h"
#include "intake/unpack/raw_names.h"

namespace caisson::intake::unpack {
namespace {

using policy::FileKind;
using policy::PlannedFile;

// A zip file begins with an entry, or with the directory of none. A file with other bytes in front may be two archives
// at once, and different readers would read different ones.
bool LooksLikeZip(std::string_view archive) {
  return archive.substr(0, 4) == "PK\3\4" || archive.substr(0, 4) == "PK\5\6";
}

// What libarchive reads, in the order in which it must go.
struct Input {
  std::string zip;
  std::unique_ptr<Decompressor> plain;
  std::unique_ptr<RawNameTar> tar;
  std::optional<Error> fault;  // of `tar`, which libarchive can only be told of by a number
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

Result<std::unique_ptr<Input>> Open(std::string_view archive, ArchiveFormat format) {
  const bool zip = LooksLikeZip(archive);
  if (format == ArchiveFormat::kZip && !zip) return Error::Invalid("does not begin like a zip file");
  if (format == ArchiveFormat::kTar && zip) return Error::Invalid("is a zip file, not tar");
  auto input = std::make_unique<Input>();
  input->reader.reset(archive_read_new());
  struct archive* raw = input->reader.get();
  if (raw == nullptr) return Error::System(ENOMEM, "open the archive");
  // Nothing is enabled but what is listed here, and no filter.
  if (zip) {
    input->zip = archive;
    ClearUtf8Marks(input->zip);
    if (archive_read_support_format_zip_seekable(raw) != ARCHIVE_OK)
      return Error::Unsupported("this libarchive was built without zip");
    if (archive_read_open_memory(raw, input->zip.data(), input->zip.size()) != ARCHIVE_OK) return Fault(raw, "");
    return input;
  }
  if (archive_read_support_format_tar(raw) != ARCHIVE_OK)
    return Error::Unsupported("this libarchive was built without tar");
  CAISSON_TRY(input->plain, Decompressor::Open([archive]() mutable -> Result<std::string_view> {
                return std::exchange(archive, {});
              }));
  input->tar = std::make_unique<RawNameTar>([plain = input->plain.get()] { return plain->Next(); });
  if (archive_read_open(raw, input.get(), nullptr, ReadTar, nullptr) != ARCHIVE_OK) return FaultOf(*input, "");
  return input;
}

// Normalised: "./a" is "a", and the slash at the end of a directory is not part of its name. The root is "".
std::string Normalised(std::string name, bool directory) {
  while (name.compare(0, 2, "./") == 0) name.erase(0, 2);
  if (directory) {
    while (name.size() > 1 && name.back() == '/') name.pop_back();
    if (name == ".") name.clear();
  }
  return name;
}

Result<FileKind> KindOf(struct archive_entry* entry, const std::string& name) {
  const auto refuse = [&](const char* what) { return Error::Invalid(Quoted(name) + ": is " + what); };
  if (archive_entry_hardlink(entry) != nullptr) return refuse("a hard link");
  if (archive_entry_is_encrypted(entry) != 0) return refuse("encrypted");
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return FileKind::kRegular;
    case AE_IFDIR:
      return FileKind::kDirectory;
    case AE_IFLNK:
      return FileKind::kSymlink;
    case AE_IFCHR:
    case AE_IFBLK:
      return refuse("a device");
    case AE_IFIFO:
      return refuse("a named pipe");
    case AE_IFSOCK:
      return refuse("a socket");
    default:
      return refuse("neither file, directory nor link");
  }
}

Status ReadBytes(const Input& input, struct archive_entry* entry, TreeRules& rules, PlannedFile& file,
                 const Limits& limits) {
  // The declared size is not trusted, but it is enough to stop before the first byte.
  if (archive_entry_size_is_set(entry) != 0 && archive_entry_size(entry) > 0 &&
      static_cast<uint64_t>(archive_entry_size(entry)) > limits.file_bytes) {
    return rules.Grow(file.path, static_cast<uint64_t>(archive_entry_size(entry)));
  }
  char chunk[65536];
  for (;;) {
    const la_ssize_t count = archive_read_data(input.reader.get(), chunk, sizeof(chunk));  // holes become zeros
    if (count < 0) return FaultOf(input, file.path);
    if (count == 0) return {};
    CAISSON_TRY_VOID(rules.Grow(file.path, static_cast<uint64_t>(count)));
    file.bytes.append(chunk, static_cast<size_t>(count));
  }
}

// Nothing for the root directory, which is there anyway.
Result<std::optional<PlannedFile>> ReadEntry(const Input& input, struct archive_entry* entry, TreeRules& rules,
                                             const Limits& limits) {
  const char* stored_name = archive_entry_pathname(entry);
  if (stored_name == nullptr) return Error::Invalid("an entry's name cannot be read");
  CAISSON_TRY(const FileKind kind, KindOf(entry, stored_name));
  PlannedFile file;
  file.kind = kind;
  file.path = Normalised(stored_name, kind == FileKind::kDirectory);
  if (file.path.empty() && kind == FileKind::kDirectory) return std::optional<PlannedFile>();
  switch (kind) {
    case FileKind::kDirectory:
      file.mode = 0755;
      CAISSON_TRY_VOID(rules.Enter(file.path, kind));
      break;
    case FileKind::kSymlink: {
      const char* target = archive_entry_symlink(entry);
      file.mode = 0777;
      file.bytes = target != nullptr ? target : "";
      CAISSON_TRY_VOID(rules.Enter(file.path, kind, file.bytes));
      CAISSON_TRY_VOID(rules.Grow(file.path, file.bytes.size()));
      break;
    }
    case FileKind::kRegular:
      file.mode = (archive_entry_perm(entry) & 0111) != 0 ? 0755 : 0644;
      CAISSON_TRY_VOID(rules.Enter(file.path, kind));
      CAISSON_TRY_VOID(ReadBytes(input, entry, rules, file, limits));
      break;
  }
  return std::optional<PlannedFile>(std::move(file));
}

}  // namespace

Status Unpack(std::string_view archive, ArchiveFormat format, const Limits& limits,
              const std::function<Status(const PlannedFile&)>& deliver) {
  CAISSON_TRY(const std::unique_ptr<Input> input, Open(archive, format));
  struct archive* reader = input->reader.get();
  TreeRules rules(limits, archive.size());
  for (;;) {
    struct archive_entry* entry = nullptr;
    const int code = archive_read_next_header(reader, &entry);
    if (code == ARCHIVE_EOF) return {};
    // A warning too: something in the header was not understood.
    if (code != ARCHIVE_OK) return FaultOf(*input, "");
    CAISSON_TRY(const std::optional<PlannedFile> file, ReadEntry(*input, entry, rules, limits));
    if (file) CAISSON_TRY_VOID(deliver(*file));
  }
}

Status PrepareLibrary() {
  // libarchive turns the names of zip and pax entries from UTF-8 into the locale's own encoding.
  if (::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) return Error::Unsupported("this system has no locale C.UTF-8");
  ::iconv_close(::iconv_open("UTF-8", "UTF-8"));  // closing one that failed does nothing
  // zip has local times. libc repeatedly looks up the zone of the machine, but only once a named zone.
  ::setenv("TZ", "UTC0", 1);
  ::tzset();
  return {};
}

}  // namespace caisson::intake::unpack
