#include "client/tar_writer.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace caisson::client {

namespace {

constexpr size_t kBlockBytes = 512;
constexpr char kRegular = '0', kSymbolicLink = '2', kDirectory = '5', kLongTarget = 'K', kLongName = 'L';

// POSIX.1-1988, as GNU tar fills it.
struct Header {
  char name[100];
  char mode[8], owner[8], group[8];
  char size[12], time[12];
  char checksum[8];
  char type;
  char link_target[100];
  char magic[8];
  char rest[247];
};
static_assert(sizeof(Header) == kBlockBytes);

template <size_t N>
void PutOctal(char (&field)[N], uint64_t value) {
  std::snprintf(field, N, "%0*llo", static_cast<int>(N - 1), static_cast<unsigned long long>(value));
}

template <size_t N>
void PutText(char (&field)[N], const std::string& text) {
  std::memcpy(field, text.data(), text.size() < N ? text.size() : N);
}

}  // namespace

void TarWriter::Add(const policy::PlannedFile& file) {
  switch (file.kind) {
    case policy::FileKind::kDirectory:
      return AddEntry(kDirectory, file.path + "/", "", 0755, "");
    case policy::FileKind::kSymlink:
      return AddEntry(kSymbolicLink, file.path, file.bytes, 0777, "");
    case policy::FileKind::kRegular:
      return AddEntry(kRegular, file.path, "", file.mode, file.bytes);
  }
}

void TarWriter::AddEntry(char type, const std::string& name, const std::string& link_target, unsigned mode,
                         const std::string& bytes) {
  constexpr char kLong[] = "././@LongLink";
  if (name.size() > sizeof(Header::name)) AddEntry(kLongName, kLong, "", 0644, name + '\0');
  if (link_target.size() > sizeof(Header::link_target)) AddEntry(kLongTarget, kLong, "", 0644, link_target + '\0');
  Header header{};
  PutText(header.name, name);
  PutOctal(header.mode, mode & 07777);
  PutOctal(header.owner, 0);
  PutOctal(header.group, 0);
  PutOctal(header.size, bytes.size());
  PutOctal(header.time, 0);
  header.type = type;
  PutText(header.link_target, link_target);
  std::memcpy(header.magic, "ustar  ", sizeof(header.magic));
  // The checksum is computed with blanks in its own field.
  std::memset(header.checksum, ' ', sizeof(header.checksum));
  unsigned char block[kBlockBytes];
  std::memcpy(block, &header, sizeof(header));
  unsigned sum = 0;
  for (const unsigned char byte : block) sum += byte;
  std::snprintf(header.checksum, sizeof(header.checksum), "%06o", sum);
  archive_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  archive_.append(bytes);
  archive_.append((kBlockBytes - bytes.size() % kBlockBytes) % kBlockBytes, '\0');
}

std::string TarWriter::Finish() && {
  archive_.append(2 * kBlockBytes, '\0');
  return std::move(archive_);
}

}  // namespace caisson::client
