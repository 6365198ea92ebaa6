#include "intake/unpack/raw_names.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

namespace caisson::intake::unpack {
namespace {

// A header of tar (POSIX.1-2001): where its members are.
constexpr size_t kBlock = 512;
constexpr size_t kSizeAt = 124, kSizeBytes = 12;
constexpr size_t kChecksumAt = 148, kChecksumBytes = 8;
constexpr size_t kTypeAt = 156;
constexpr size_t kSparseMoreAt = 482;  // GNU: a map of holes goes on in the next block, …
constexpr size_t kMapMoreAt = 504;     // … and in the next
constexpr uint64_t kMaxExtendedHeader = uint64_t{1} << 20;
constexpr char kBinary[] = "21 hdrcharset=BINARY\n";

uint64_t Padded(uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

// Octal digits, or a binary number behind a byte with the highest bit.
std::optional<uint64_t> SizeOf(std::string_view header) {
  std::string_view field = header.substr(kSizeAt, kSizeBytes);
  uint64_t size = 0;
  if (static_cast<unsigned char>(field.front()) == 0x80) {
    for (const char c : field.substr(1)) {
      if (size >> 55 != 0) return std::nullopt;
      size = size << 8 | static_cast<unsigned char>(c);
    }
    return size;
  }
  while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
  const size_t digits = std::min(field.find_first_not_of("01234567"), field.size());
  const auto [end, fault] = std::from_chars(field.data(), field.data() + digits, size, 8);
  if (digits > 0 && fault != std::errc()) return std::nullopt;
  return size;
}

void SetSize(std::string& header, uint64_t size) {
  char text[32];
  std::snprintf(text, sizeof(text), "%011llo", static_cast<unsigned long long>(size));
  header.replace(kSizeAt, kSizeBytes, std::string(text, 11) + '\0');
  header.replace(kChecksumAt, kChecksumBytes, kChecksumBytes, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(text, sizeof(text), "%06o", sum);
  header.replace(kChecksumAt, kChecksumBytes, std::string(text, 6) + '\0' + ' ');
}

// The file's size as an extended header has it ("19 size=8589934592\n"); nothing where it does not say.
std::optional<int64_t> SizeRecord(std::string_view records) {
  while (!records.empty()) {
    size_t length = 0;
    const auto [end, fault] = std::from_chars(records.data(), records.data() + records.size(), length);
    if (fault != std::errc() || length == 0 || length > records.size()) return std::nullopt;
    const std::string_view record = records.substr(0, length);
    const std::string_view text = record.substr(static_cast<size_t>(end - records.data()));
    constexpr std::string_view kKey = " size=";
    int64_t size = 0;
    if (text.substr(0, kKey.size()) == kKey &&
        std::from_chars(text.data() + kKey.size(), text.data() + text.size(), size).ec == std::errc() && size >= 0)
      return size;
    records.remove_prefix(length);
  }
  return std::nullopt;
}

}  // namespace

Status RawNameTar::Fill(size_t bytes) {
  while (input_.size() < bytes && !ended_) {
    CAISSON_TRY(const std::string_view more, source_());
    ended_ = more.empty();
    input_.append(more);
  }
  return {};
}

Result<std::string_view> RawNameTar::PassOn(size_t bytes) {
  output_ = input_.substr(0, bytes);
  input_.erase(0, bytes);
  return std::string_view(output_);
}

Result<std::string_view> RawNameTar::Next() {
  CAISSON_TRY_VOID(Fill(kBlock));
  if (input_.empty()) return std::string_view();
  if (not_understood_) return PassOn(input_.size());
  if (pass_ > 0) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(pass_, input_.size()));
    pass_ -= bytes;
    return PassOn(bytes);
  }
  if (input_.size() < kBlock) return PassOn(input_.size());
  return NextHeader();
}

Result<std::string_view> RawNameTar::NextHeader() {
  const std::string_view header = std::string_view(input_).substr(0, kBlock);
  if (std::exchange(sparse_, false)) {
    sparse_ = header[kMapMoreAt] != 0;
    return PassOn(kBlock);
  }
  const std::optional<uint64_t> size = SizeOf(header);
  if (!size) {
    not_understood_ = true;
    return PassOn(kBlock);
  }
  const char type = header[kTypeAt];
  if (type == 'x' && *size <= kMaxExtendedHeader) return ExtendedHeader(static_cast<size_t>(*size));
  const uint64_t own = size_ >= 0 ? static_cast<uint64_t>(size_) : *size;
  const bool extra = type == 'x' || type == 'g' || type == 'L' || type == 'K';
  // Links, devices and directories have no bytes, whatever they say.
  pass_ = extra ? Padded(*size) : type >= '1' && type <= '6' ? 0 : Padded(own);
  if (!extra) size_ = -1;
  sparse_ = type == 'S' && header[kSparseMoreAt] != 0;
  return PassOn(kBlock);
}

Result<std::string_view> RawNameTar::ExtendedHeader(size_t bytes) {
  const size_t whole = kBlock + static_cast<size_t>(Padded(bytes));
  CAISSON_TRY_VOID(Fill(whole));
  if (input_.size() < whole) return PassOn(input_.size());
  std::string header = input_.substr(0, kBlock);
  std::string records = input_.substr(kBlock, bytes);
  input_.erase(0, whole);
  if (const std::optional<int64_t> size = SizeRecord(records)) size_ = *size;
  records += kBinary;
  SetSize(header, records.size());
  records.resize(static_cast<size_t>(Padded(records.size())), '\0');
  output_ = header + records;
  return std::string_view(output_);
}

namespace {

constexpr uint16_t kUtf8Mark = 0x0800;

uint64_t Number(const std::string& bytes, uint64_t at, size_t size) {
  uint64_t number = 0;
  if (at > bytes.size() || bytes.size() - at < size) return 0;
  for (size_t i = size; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(at) + i]);
  return number;
}

bool IsAt(const std::string& bytes, uint64_t at, std::string_view signature, size_t size) {
  return at <= bytes.size() && bytes.size() - at >= size &&
         std::string_view(bytes).substr(static_cast<size_t>(at), signature.size()) == signature;
}

void ClearMark(std::string& bytes, uint64_t at) {
  const uint64_t flags = Number(bytes, at, 2) & ~uint64_t{kUtf8Mark};
  bytes[static_cast<size_t>(at)] = static_cast<char>(flags & 0xff);
  bytes[static_cast<size_t>(at) + 1] = static_cast<char>(flags >> 8);
}

}  // namespace

void ClearUtf8Marks(std::string& zip) {
  const size_t end = zip.rfind("PK\5\6");
  if (end == std::string::npos || zip.size() - end < 22) return;
  uint64_t count = Number(zip, end + 10, 2);
  uint64_t at = Number(zip, end + 16, 4);
  if (end >= 20 && IsAt(zip, end - 20, std::string_view("PK\6\7", 4), 20)) {
    const uint64_t large = Number(zip, end - 20 + 8, 8);
    if (IsAt(zip, large, std::string_view("PK\6\6", 4), 56)) {
      count = Number(zip, large + 32, 8);
      at = Number(zip, large + 48, 8);
    }
  }
  for (; count > 0 && IsAt(zip, at, std::string_view("PK\1\2", 4), 46); --count) {
    const uint64_t local = Number(zip, at + 42, 4);
    ClearMark(zip, at + 8);
    if (IsAt(zip, local, std::string_view("PK\3\4", 4), 30)) ClearMark(zip, local + 6);
    at += 46 + Number(zip, at + 28, 2) + Number(zip, at + 30, 2) + Number(zip, at + 32, 2);
  }
}

}  // namespace caisson::intake::unpack
