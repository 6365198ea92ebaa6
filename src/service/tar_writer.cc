#include "service/tar_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace caisson::service {

namespace {

constexpr size_t kNameBytes = 100;
constexpr char kLongName = 'L', kLongLink = 'K';

// The fields of a header, by their offset.
struct Field {
  size_t offset, bytes;
};
constexpr Field kName{0, kNameBytes}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12}, kTime{136, 12},
    kCheckSum{148, 8}, kLink{157, kNameBytes}, kMagic{257, 8};
constexpr size_t kTypeOffset = 156;

void PutText(std::string& block, Field field, std::string_view text) {
  std::memcpy(block.data() + field.offset, text.data(), std::min(text.size(), field.bytes));
}

// Octal with a NUL behind it; in binary where that is too short.
void PutNumber(std::string& block, Field field, int64_t number) {
  char* const to = block.data() + field.offset;
  if (number >= 0 && number < int64_t{1} << (3 * (field.bytes - 1))) {
    for (size_t i = field.bytes - 1; i-- > 0; number >>= 3) to[i] = static_cast<char>('0' + (number & 7));
    return;
  }
  const bool negative = number < 0;
  for (size_t i = field.bytes; i-- > 0; number >>= 8) to[i] = static_cast<char>(number & 0xff);
  to[0] = static_cast<char>(negative ? 0xff : 0x80);
}

std::string Header(std::string_view name, char type, uint32_t mode, int64_t size, int64_t modified_s,
                   std::string_view link) {
  std::string block(static_cast<size_t>(kTarBlock), '\0');
  PutText(block, kName, name);
  PutNumber(block, kMode, mode & 07777);
  PutNumber(block, kUser, 0);
  PutNumber(block, kGroup, 0);
  PutNumber(block, kSize, size);
  PutNumber(block, kTime, modified_s);
  block[kTypeOffset] = type;
  PutText(block, kLink, link);
  PutText(block, kMagic, {"ustar  \0", 8});
  PutText(block, kCheckSum, "        ");
  int64_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof(text), "%06llo", static_cast<unsigned long long>(sum));
  PutText(block, kCheckSum, {text, 7});
  return block;
}

// A name that does not fit into the header stands in an entry before it.
std::string LongName(std::string_view name, char type) {
  if (name.size() < kNameBytes) return "";
  const auto size = static_cast<int64_t>(name.size()) + 1;
  std::string text = Header("././@LongLink", type, 0644, size, 0, "");
  text += name;
  text.append(static_cast<size_t>(1 + TarPadding(size)), '\0');
  return text;
}

}  // namespace

std::string TarHead(const TarEntry& entry) {
  std::string name = entry.name;
  if (entry.type == TarEntry::Type::kDirectory) name += '/';
  const int64_t size = entry.type == TarEntry::Type::kFile ? entry.size : 0;
  return LongName(entry.link_target, kLongLink) + LongName(name, kLongName) +
         Header(name, static_cast<char>(entry.type), entry.mode, size, entry.modified_s, entry.link_target);
}

}  // namespace caisson::service
