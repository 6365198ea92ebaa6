#include "intake/unpack/decompressor.h"

#include <archive.h>
#include <archive_entry.h>

#include <cerrno>
#include <utility>

#include "base/words.h"

namespace caisson::intake::unpack {
namespace {

constexpr size_t kLongestMark = 6;

// The compression around a tar file, by its first bytes; ARCHIVE_FILTER_NONE: none.
int FilterOf(std::string_view archive) {
  if (archive.substr(0, 2) == "\x1f\x8b") return ARCHIVE_FILTER_GZIP;
  if (archive.substr(0, kLongestMark) == std::string_view("\xfd"
                                                          "7zXZ\0",
                                                          kLongestMark))
    return ARCHIVE_FILTER_XZ;
  if (archive.substr(0, 4) == "\x28\xb5\x2f\xfd") return ARCHIVE_FILTER_ZSTD;
  return ARCHIVE_FILTER_NONE;
}

}  // namespace

void FreeReader::operator()(struct archive* reader) const { archive_read_free(reader); }

Error Fault(struct archive* reader, const std::string& name) {
  const char* text = archive_error_string(reader);
  return Error::Invalid((name.empty() ? "" : Quoted(name) + ": ") + (text != nullptr ? text : "cannot be read"));
}

Result<std::unique_ptr<Decompressor>> Decompressor::Open(ByteSource source) {
  std::unique_ptr<Decompressor> made(new Decompressor(std::move(source)));
  while (made->start_.size() < kLongestMark) {
    CAISSON_TRY(const std::string_view more, made->source_());
    if (more.empty()) break;
    made->start_.append(more);
  }
  made->unread_ = made->start_;
  const int filter = FilterOf(made->start_);
  if (filter == ARCHIVE_FILTER_NONE) return made;
  made->reader_.reset(archive_read_new());
  struct archive* raw = made->reader_.get();
  if (raw == nullptr) return Error::System(ENOMEM, "open the archive");
  // ARCHIVE_WARN would mean that libarchive wants to start another program for it.
  if (archive_read_support_format_raw(raw) != ARCHIVE_OK || archive_read_append_filter(raw, filter) != ARCHIVE_OK)
    return Error::Unsupported("this libarchive was built without gzip, xz or zstd");
  struct archive_entry* entry = nullptr;
  if (archive_read_open(raw, made.get(), nullptr, Read, nullptr) != ARCHIVE_OK ||
      archive_read_next_header(raw, &entry) != ARCHIVE_OK)
    return made->fault_ ? *made->fault_ : Fault(raw, "");
  return made;
}

Result<std::string_view> Decompressor::NextInput() {
  if (!unread_.empty()) return std::exchange(unread_, {});
  return source_();
}

long Decompressor::Read(struct archive* reader, void* self, const void** bytes) {
  auto* decompressor = static_cast<Decompressor*>(self);
  Result<std::string_view> next = decompressor->NextInput();
  if (!next) {
    decompressor->fault_ = std::move(next).error();
    archive_set_error(reader, EIO, "cannot be read");
    return -1;
  }
  *bytes = next->data();
  return static_cast<long>(next->size());
}

Result<std::string_view> Decompressor::Next() {
  if (reader_ == nullptr) return NextInput();
  for (;;) {
    const void* bytes = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int code = archive_read_data_block(reader_.get(), &bytes, &size, &offset);
    if (code == ARCHIVE_EOF) return std::string_view();
    if (code != ARCHIVE_OK) return fault_ ? *fault_ : Fault(reader_.get(), "");
    const std::string_view block(static_cast<const char*>(bytes), size);
    if (block.empty()) continue;
    if (std::exchange(first_, false) && FilterOf(block) != ARCHIVE_FILTER_NONE)
      return Error::Invalid("is compressed more than once");
    return block;
  }
}

}  // namespace caisson::intake::unpack
