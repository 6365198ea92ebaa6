#include "intake/unpack/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <iconv.h>
#include <locale.h>
#include <stdlib.h>
#include <time.h>

#include <memory>
#include <string>
#include <utility>

#include "base/words.h"

namespace caisson::intake::unpack {
namespace {

using policy::FileKind;
using policy::PlannedFile;

struct FreeReader {
  void operator()(struct archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<struct archive, FreeReader>;

Error Fault(struct archive* reader, const std::string& name) {
  const char* text = archive_error_string(reader);
  return Error::Invalid((name.empty() ? "" : Quoted(name) + ": ") + (text != nullptr ? text : "cannot be read"));
}

// A zip file begins with an entry, or with the directory of none. What has something else in front may be two archives
// at once, and which one is read must not depend on the reader.
bool LooksLikeZip(std::string_view archive) {
  return archive.substr(0, 4) == "PK\3\4" || archive.substr(0, 4) == "PK\5\6";
}

Result<Reader> Open(std::string_view archive, ArchiveFormat format) {
  const bool zip = LooksLikeZip(archive);
  if (format == ArchiveFormat::kZip && !zip) return Error::Invalid("does not begin like a zip file");
  if (format == ArchiveFormat::kTar && zip) return Error::Invalid("is a zip file, not tar");
  Reader reader(archive_read_new());
  if (reader == nullptr) return Error::System(ENOMEM, "open the archive");
  // Nothing is enabled but what is listed here. ARCHIVE_WARN would mean that another program is to be started for it.
  struct archive* raw = reader.get();
  const bool ready = zip ? archive_read_support_format_zip_seekable(raw) == ARCHIVE_OK
                         : archive_read_support_format_tar(raw) == ARCHIVE_OK &&
                               archive_read_support_filter_gzip(raw) == ARCHIVE_OK &&
                               archive_read_support_filter_xz(raw) == ARCHIVE_OK &&
                               archive_read_support_filter_zstd(raw) == ARCHIVE_OK;
  if (!ready) return Error::Unsupported("this libarchive was built without gzip, xz or zstd");
  if (archive_read_open_memory(raw, archive.data(), archive.size()) != ARCHIVE_OK) return Fault(raw, "");
  // Its own "none" and one around it. Wrapped again, a small file could unpack for hours to nothing.
  if (archive_filter_count(raw) > 2) return Error::Invalid("is compressed more than once");
  return reader;
}

// As the rules have it: "./a" is "a", and a directory's slash at the end is not part of its name. The root is "".
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

Status ReadBytes(struct archive* reader, struct archive_entry* entry, TreeRules& rules, PlannedFile& file,
                 const Limits& limits) {
  // What it says of itself is no promise, but enough to stop before the first byte.
  if (archive_entry_size_is_set(entry) != 0 && archive_entry_size(entry) > 0 &&
      static_cast<uint64_t>(archive_entry_size(entry)) > limits.file_bytes) {
    return rules.Grow(file.path, static_cast<uint64_t>(archive_entry_size(entry)));
  }
  char chunk[65536];
  for (;;) {
    const la_ssize_t count = archive_read_data(reader, chunk, sizeof(chunk));  // holes are filled with zeros
    if (count < 0) return Fault(reader, file.path);
    if (count == 0) return {};
    CAISSON_TRY_VOID(rules.Grow(file.path, static_cast<uint64_t>(count)));
    file.bytes.append(chunk, static_cast<size_t>(count));
  }
}

// Nothing for the root directory, which is there anyway.
Result<std::optional<PlannedFile>> ReadEntry(struct archive* reader, struct archive_entry* entry, TreeRules& rules,
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
      CAISSON_TRY_VOID(ReadBytes(reader, entry, rules, file, limits));
      break;
  }
  return std::optional<PlannedFile>(std::move(file));
}

}  // namespace

Status Unpack(std::string_view archive, ArchiveFormat format, const Limits& limits,
              const std::function<Status(const PlannedFile&)>& deliver) {
  CAISSON_TRY(const Reader reader, Open(archive, format));
  TreeRules rules(limits, archive.size());
  for (;;) {
    struct archive_entry* entry = nullptr;
    const int code = archive_read_next_header(reader.get(), &entry);
    if (code == ARCHIVE_EOF) return {};
    // A warning too: something in the header was not understood.
    if (code != ARCHIVE_OK) return Fault(reader.get(), "");
    CAISSON_TRY(const std::optional<PlannedFile> file, ReadEntry(reader.get(), entry, rules, limits));
    if (file) CAISSON_TRY_VOID(deliver(*file));
  }
}

Status PrepareLibrary() {
  // libarchive turns the names of zip and pax entries from UTF-8 into the locale's own encoding.
  if (::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) return Error::Unsupported("this system has no locale C.UTF-8");
  ::iconv_close(::iconv_open("UTF-8", "UTF-8"));  // closing one that failed does nothing
  // zip has local times. libc looks again and again for the zone of the machine, but only once for one that is named.
  ::setenv("TZ", "UTC0", 1);
  ::tzset();
  return {};
}

}  // namespace caisson::intake::unpack
